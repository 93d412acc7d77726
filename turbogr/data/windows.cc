#include "turbogr/data/windows.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "turbogr/core/check.h"
#include "turbogr/core/philox.h"

namespace turbogr::data {
namespace {

// Keeps the windows of the `count` users with the lowest lots, in their old order.
void draw_users(std::vector<Window>& windows, std::int64_t count, std::uint64_t seed) {
  if (count >= static_cast<std::int64_t>(windows.size())) return;
  const auto lot = [seed](const Window& window) {
    constexpr std::uint64_t kStream = 0x75736572;  // apart from other uses of the seed
    const auto bits = philox(seed, static_cast<std::uint64_t>(window.user), kStream);
    return std::tuple(bits[0], bits[1], window.user);
  };
  const auto drawn = windows.begin() + count;
  std::nth_element(windows.begin(), drawn, windows.end(),
                   [&](const Window& a, const Window& b) { return lot(a) < lot(b); });
  windows.erase(drawn, windows.end());
  std::sort(windows.begin(), windows.end(),
            [](const Window& a, const Window& b) { return a.user < b.user; });
}

}  // namespace

LongHistory long_history_from_name(std::string_view name) {
  if (name == "last") return LongHistory::kLast;
  TGR_CHECK(name == "windows", "long histories '", name, "'; use last or windows");
  return LongHistory::kWindows;
}

std::vector<Window> make_windows(const Store& store, const WindowOptions& options) {
  const std::int64_t longest = options.max_length;
  TGR_CHECK(longest >= 1 && longest < (std::int64_t{1} << kPositionBits), "a longest window of ",
            longest, " tokens; use 1 to ", (std::int64_t{1} << kPositionBits) - 1);
  TGR_CHECK(store.num_users() <= std::numeric_limits<std::int32_t>::max(), "a store of ",
            store.num_users(), " users; the loader numbers users with 31 bits");
  options.holdout.check(options.split, store.time_unit());
  std::span<const std::int64_t> times;
  if (options.holdout.by_time()) times = store.times();
  const bool cut = options.split == Split::kTrain && options.long_history == LongHistory::kWindows;

  std::vector<Window> windows;
  for (std::int64_t user = 0; user < store.num_users(); ++user) {
    const auto [begin, count] = store.events_of(user);
    const auto own = times.empty() ? times
                                   : times.subspan(static_cast<std::size_t>(begin),
                                                   static_cast<std::size_t>(count));
    const std::int64_t used =
        options.holdout.events_used(options.split, count, own, store.time_unit());
    if (used == 0) continue;
    const std::int64_t tokens = used - 1;  // the last event in use is a target only
    std::int64_t length = cut ? (tokens - 1) % longest + 1 : std::min(tokens, longest);
    for (std::int64_t from = cut ? 0 : tokens - length; from < tokens; from += length) {
      if (from > 0 && cut) length = longest;
      windows.push_back({.first_event = begin + from,
                         .length = static_cast<std::int32_t>(length),
                         .user = static_cast<std::int32_t>(user)});
    }
  }
  if (options.split != Split::kTrain && options.max_users > 0) {
    draw_users(windows, options.max_users, options.user_seed);
  }
  return windows;
}

}  // namespace turbogr::data
