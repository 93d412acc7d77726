#include "turbogr/data/drop_repeats.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/data/event_sort.h"

namespace turbogr::data {
namespace {

// Looks at rows in the order of users and times.
class RepeatFinder {
 public:
  RepeatFinder(Repeats repeats, std::int64_t num_items)
      : repeats_(repeats), seen_(static_cast<std::size_t>((num_items + 63) / 64)) {}

  bool is_repeat(const std::byte* row) {
    const auto user = load_field<std::int64_t>(row, RowLayout::kUser);
    const auto time = load_field<std::int64_t>(row, RowLayout::kTime);
    if (user != user_ || (repeats_ == Repeats::kDropEvents && time != time_)) forget();
    user_ = user;
    time_ = time;
    const auto item = load_field<std::int64_t>(row, RowLayout::kItem);
    const auto word = static_cast<std::size_t>(item >> 6);
    const std::uint64_t bit = std::uint64_t{1} << (item & 63);
    if ((seen_[word] & bit) != 0) return true;
    seen_[word] |= bit;
    // Past as many as there are words it is cheaper to clear them all.
    if (touched_.size() <= seen_.size()) touched_.push_back(word);
    return false;
  }

 private:
  void forget() {
    if (touched_.size() > seen_.size()) {
      std::fill(seen_.begin(), seen_.end(), 0);
    } else {
      for (const std::size_t word : touched_) seen_[word] = 0;
    }
    touched_.clear();
  }

  Repeats repeats_;
  std::vector<std::uint64_t> seen_;  // a bit an item
  std::vector<std::size_t> touched_;
  std::int64_t user_ = -1;
  std::int64_t time_ = 0;
};

SortRange range_of(const ParsedLog& log) {
  return {.num_users = log.users.count, .first_time = log.first_time, .last_time = log.last_time};
}

void drop_in_memory(ThreadPool& pool, RepeatFinder& finder, RowNumbering& numbering,
                    ParsedLog& log) {
  numbering.for_each_row([](const std::byte*) {});  // their times, as the sort is to see them
  const std::size_t stride = log.rows->layout().stride();
  const auto count = static_cast<std::size_t>(log.rows->size());
  std::byte* const rows = log.rows->data();
  std::vector<bool> drop(count);
  const auto order = order_of(pool, rows, count, stride, range_of(log));
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t place = order != nullptr ? order[i] : i;
    drop[place] = finder.is_repeat(rows + stride * place);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (drop[i]) continue;
    if (kept != i) std::memcpy(rows + stride * kept, rows + stride * i, stride);
    ++kept;
  }
  log.rows->shrink(kept);
}

void drop_on_disk(ThreadPool& pool, RepeatFinder& finder, RowNumbering& numbering, ParsedLog& log,
                  const MemoryPlan& plan, const std::filesystem::path& folder) {
  constexpr std::size_t kRowsInMemory = 1 << 14;  // the sort has the rest
  const RowLayout layout = log.rows->layout();
  EventSort sort(pool, layout, plan.row_capacity(layout.stride()), range_of(log),
                 folder / "repeats.tmp", plan.working);
  numbering.for_each_row(
      [&](const std::byte* row) { std::memcpy(sort.add(), row, layout.stride()); });
  log.rows->remove_file();
  numbering.release();
  auto unique = std::make_unique<EventRows>(layout, kRowsInMemory, folder / "unique.tmp");
  sort.drain([&](const std::byte* row) {
    if (!finder.is_repeat(row)) std::memcpy(unique->add(), row, layout.stride());
  });
  unique->close();
  log.rows = std::move(unique);
}

}  // namespace

std::int64_t drop_repeats(ThreadPool& pool, Repeats repeats, RowNumbering& numbering,
                          ParsedLog& log, const MemoryPlan& plan,
                          const std::filesystem::path& folder) {
  if (repeats == Repeats::kKeep) return 0;
  TGR_CHECK(repeats != Repeats::kDropEvents || log.time_unit != TimeUnit::kNone,
            "--deduplicate tells a repeated event by its time, and this log has none; give ",
            "--deduplicate-items to keep the first event of a user with each item");
  const std::int64_t before = log.rows->size();
  RepeatFinder finder(repeats, log.items.count);
  if (log.rows->in_memory()) {
    drop_in_memory(pool, finder, numbering, log);
  } else {
    drop_on_disk(pool, finder, numbering, log, plan, folder);
  }
  return before - log.rows->size();
}

}  // namespace turbogr::data
