#include <atomic>
#include <bit>

#include "turbogr/data/store_writer.h"
#include "turbogr/data/synth.h"
#include "turbogr/data/synth_chunks.h"

namespace turbogr::data {
namespace {

// Which catalogue ids appear, and their places among those that do.
class Appearing {
 public:
  explicit Appearing(std::int64_t items)
      : words_(static_cast<std::size_t>((items + 63) / 64)), before_(words_.size()) {}

  void mark(std::uint32_t id) {
    const std::uint64_t bit = std::uint64_t{1} << (id % 64);
    std::atomic<std::uint64_t>& word = words_[id / 64];
    // Most items have been seen before: look first, so that threads share the line in peace.
    if ((word.load(std::memory_order_relaxed) & bit) == 0) {
      word.fetch_or(bit, std::memory_order_relaxed);
    }
  }
  std::int64_t count_up() {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < words_.size(); ++i) {
      before_[i] = sum;
      sum += static_cast<std::uint32_t>(std::popcount(words_[i].load(std::memory_order_relaxed)));
    }
    return sum;
  }
  std::int64_t index(std::uint32_t id) const {
    const std::uint64_t below = (std::uint64_t{1} << (id % 64)) - 1;
    return before_[id / 64] +
           std::popcount(words_[id / 64].load(std::memory_order_relaxed) & below);
  }
  template <class Function>
  void for_each(Function&& function) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      for (std::uint64_t word = words_[i].load(std::memory_order_relaxed); word != 0;
           word &= word - 1) {
        function(static_cast<std::int64_t>(i) * 64 + std::countr_zero(word));
      }
    }
  }

 private:
  std::vector<std::atomic<std::uint64_t>> words_;
  std::vector<std::uint32_t> before_;
};

struct StoreSlot {
  SynthHistory history;
  std::vector<std::int64_t> items;
  std::vector<std::uint32_t> signals;
  std::vector<float> play_times;
  std::vector<float> durations;
};

void add_numbers(const SynthWorld& world, std::int64_t user, StoreSlot& slot) {
  slot.play_times.clear();
  slot.durations.clear();
  for (std::size_t i = 0; i < slot.history.items.size(); ++i) {
    const SynthDetails details = world.details(user, static_cast<std::int64_t>(i),
                                               slot.history.items[i], slot.history.signals[i]);
    slot.play_times.push_back(static_cast<float>(details.play_ms));
    slot.durations.push_back(static_cast<float>(details.duration_ms));
  }
}

}  // namespace

void write_synth_store(const SynthWorld& world, ThreadPool& pool,
                       const std::filesystem::path& target, const SynthStoreOptions& options) {
  // Claimed before the work, so that a target that exists is refused at once.
  PartialFolder folder(target, options.overwrite);
  // Twice through the world: dense indices need to know every item that appears, and making a user
  // again is cheaper than keeping all of them.
  Appearing appearing(world.catalogue().num_items());
  for_each_synth_user<SynthHistory>(
      world, pool,
      [&](std::int64_t user, SynthHistory& history) {
        world.generate(user, history);
        for (const std::uint32_t item : history.items) appearing.mark(item);
      },
      [](std::int64_t, SynthHistory&) {});

  StoreWriter writer(
      std::move(folder),
      {.time_unit = TimeUnit::kMilliseconds,
       .num_items = appearing.count_up(),
       .user_ids = IdKind::kInt64,
       .item_ids = IdKind::kInt64,
       .signals = {"is_click", "is_like", "is_follow", "is_comment", "is_forward", "is_hate",
                   "long_view", "is_profile_enter", "is_rand"},
       .numbers = options.numbers ? std::vector<std::string>{"play_time_ms", "duration_ms"}
                                  : std::vector<std::string>{}});
  for_each_synth_user<StoreSlot>(
      world, pool,
      [&](std::int64_t user, StoreSlot& slot) {
        world.generate(user, slot.history);
        slot.items.resize(slot.history.items.size());
        slot.signals.assign(slot.history.signals.begin(), slot.history.signals.end());
        for (std::size_t i = 0; i < slot.items.size(); ++i) {
          slot.items[i] = appearing.index(slot.history.items[i]);
        }
        if (options.numbers) add_numbers(world, user, slot);
      },
      [&](std::int64_t user, StoreSlot& slot) {
        Events events{.items = slot.items,
                      .times = slot.history.times,
                      .signals = slot.signals,
                      .numbers = {}};
        if (options.numbers) events.numbers = {slot.play_times, slot.durations};
        writer.add_user(user, events);
        if (options.progress) options.progress(writer.num_events());
      });
  appearing.for_each([&](std::int64_t id) { writer.add_item_id(id); });
  writer.finish();
}

}  // namespace turbogr::data
