#include "turbogr/data/event_sort.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <utility>

namespace turbogr::data {
namespace {

constexpr std::int64_t kSortPiece = 1 << 17;
constexpr std::uint64_t kSortBuckets = 1024;

// Keys and the places of their rows, uninitialised.
struct KeyedPlaces {
  std::unique_ptr<std::uint64_t[]> keys;
  std::unique_ptr<std::uint32_t[]> places;

  std::size_t size = 0;

  void make_room(std::size_t count) {
    if (count <= size) return;
    keys.reset();
    places.reset();
    keys.reset(new std::uint64_t[count]);
    places.reset(new std::uint32_t[count]);
    size = count;
  }
};

// Least significant byte first; bytes that are the same in all keys cost nothing. `other` is
// scratch of the same size.
void radix_sort(std::uint64_t* keys, std::uint32_t* places, std::size_t count,
                std::uint64_t* other_keys, std::uint32_t* other_places) {
  std::array<std::array<std::uint32_t, 256>, 8> histograms = {};
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t byte = 0; byte < 8; ++byte) ++histograms[byte][(keys[i] >> (8 * byte)) & 255];
  }
  bool moved = false;
  for (std::size_t byte = 0; byte < 8; ++byte) {
    auto& histogram = histograms[byte];
    const int shift = static_cast<int>(8 * byte);
    if (histogram[(keys[0] >> shift) & 255] == count) continue;
    std::uint32_t sum = 0;
    for (std::uint32_t& slot : histogram) sum += std::exchange(slot, sum);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t at = histogram[(keys[i] >> shift) & 255]++;
      other_keys[at] = keys[i];
      other_places[at] = places[i];
    }
    std::swap(keys, other_keys);
    std::swap(places, other_places);
    moved = !moved;
  }
  if (moved) std::copy_n(places, count, other_places);  // back where they came from
}

// (user, time) as one number, where both fit.
class SortKeys {
 public:
  SortKeys(const std::byte* rows, std::size_t stride, const SortRange& range)
      : rows_(rows),
        stride_(stride),
        first_time_(range.first_time),
        time_bits_(static_cast<int>(std::bit_width(static_cast<std::uint64_t>(range.last_time) -
                                                   static_cast<std::uint64_t>(range.first_time)))),
        num_users_(static_cast<std::uint64_t>(std::max<std::int64_t>(range.num_users, 1))) {}

  std::int64_t user(std::size_t i) const {
    return load_field<std::int64_t>(rows_ + i * stride_, RowLayout::kUser);
  }
  std::int64_t time(std::size_t i) const {
    return load_field<std::int64_t>(rows_ + i * stride_, RowLayout::kTime);
  }
  bool fit() const { return time_bits_ + static_cast<int>(std::bit_width(num_users_)) <= 63; }
  std::uint64_t key(std::size_t i) const {
    return (static_cast<std::uint64_t>(user(i)) << time_bits_) +
           static_cast<std::uint64_t>(time(i) - first_time_);
  }
  bool before(std::size_t a, std::size_t b) const {
    return std::pair(user(a), time(a)) < std::pair(user(b), time(b));
  }
  // Rises with the user.
  std::size_t bucket(std::size_t i) const {
    const auto of = static_cast<std::uint64_t>(user(i));
    return num_users_ <= kSortBuckets ? of : of * kSortBuckets / num_users_;
  }

 private:
  const std::byte* rows_;
  std::size_t stride_;
  std::int64_t first_time_;
  int time_bits_;
  std::uint64_t num_users_;
};

bool in_order(ThreadPool& pool, const SortKeys& rows, std::size_t count) {
  std::atomic<bool> sorted = true;
  parallel_ranges(pool, static_cast<std::int64_t>(count), kSortPiece,
                  [&](std::int64_t begin, std::int64_t end, int) {
                    if (!sorted.load(std::memory_order_relaxed)) return;
                    for (auto i = static_cast<std::size_t>(std::max<std::int64_t>(begin, 1));
                         i < static_cast<std::size_t>(end); ++i) {
                      if (!rows.before(i, i - 1)) continue;
                      sorted.store(false, std::memory_order_relaxed);
                      return;
                    }
                  });
  return sorted;
}

}  // namespace

// Rows are dealt to buckets of neighbouring users in the order they come, then each bucket is
// sorted in the cache.
std::unique_ptr<std::uint32_t[]> order_of(ThreadPool& pool, const std::byte* rows,
                                          std::size_t count, std::size_t stride,
                                          const SortRange& range) {
  const SortKeys keys(rows, stride, range);
  if (in_order(pool, keys, count)) return nullptr;
  const auto num_rows = static_cast<std::int64_t>(count);
  const std::int64_t pieces = (num_rows + kSortPiece - 1) / kSortPiece;
  std::vector<std::array<std::uint32_t, kSortBuckets>> ends(static_cast<std::size_t>(pieces));
  parallel_ranges(pool, num_rows, kSortPiece, [&](std::int64_t begin, std::int64_t end, int) {
    auto& histogram = ends[static_cast<std::size_t>(begin / kSortPiece)];
    histogram.fill(0);
    for (std::int64_t i = begin; i < end; ++i)
      ++histogram[keys.bucket(static_cast<std::size_t>(i))];
  });
  std::vector<std::size_t> bucket_ends;
  std::uint32_t sum = 0;
  for (std::size_t bucket = 0; bucket < kSortBuckets; ++bucket) {
    for (auto& histogram : ends) sum += std::exchange(histogram[bucket], sum);
    bucket_ends.push_back(sum);
  }
  const bool fit = keys.fit();
  KeyedPlaces all;
  if (fit) {
    all.make_room(count);
  } else {
    all.places.reset(new std::uint32_t[count]);
  }
  parallel_ranges(pool, num_rows, kSortPiece, [&](std::int64_t begin, std::int64_t end, int) {
    auto& places = ends[static_cast<std::size_t>(begin / kSortPiece)];
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const std::uint32_t at = places[keys.bucket(i)]++;
      if (fit) all.keys[at] = keys.key(i);
      all.places[at] = static_cast<std::uint32_t>(i);
    }
  });
  // Each worker's largest bucket: together no more than all of them.
  std::vector<KeyedPlaces> scratch(static_cast<std::size_t>(pool.size()));
  parallel_for(pool, kSortBuckets, [&](std::int64_t bucket, int worker) {
    const auto b = static_cast<std::size_t>(bucket);
    const std::size_t begin = b == 0 ? 0 : bucket_ends[b - 1];
    const std::size_t size = bucket_ends[b] - begin;
    if (size < 2) return;
    if (fit) {
      KeyedPlaces& other = scratch[static_cast<std::size_t>(worker)];
      other.make_room(size);
      radix_sort(all.keys.get() + begin, all.places.get() + begin, size, other.keys.get(),
                 other.places.get());
    } else {
      std::stable_sort(all.places.get() + begin, all.places.get() + begin + size,
                       [&](std::uint32_t x, std::uint32_t y) { return keys.before(x, y); });
    }
  });
  return std::move(all.places);
}

EventSort::EventSort(ThreadPool& pool, RowLayout layout, std::size_t capacity, SortRange range,
                     std::filesystem::path file, std::size_t merge_bytes)
    : pool_(pool),
      stride_(layout.stride()),
      capacity_(std::min<std::size_t>(std::max<std::size_t>(capacity, 1), 0xffffffffu)),
      range_(range),
      path_(std::move(file)),
      merge_bytes_(merge_bytes) {}

void EventSort::adopt(std::unique_ptr<std::byte[]> rows, std::size_t count) {
  rows_ = std::move(rows);
  count_ = count;
}

void EventSort::write_run() {
  check_interrupt();
  if (!writer_) writer_ = std::make_unique<FileWriter>(path_, std::size_t{1} << 18);
  const auto order = order_of(pool_, rows_.get(), count_, stride_, range_);
  const SortedRows sorted = {rows_.get(), stride_, order.get(), count_};
  for (std::size_t i = 0; i < count_; ++i) {
    sorted.prefetch(i + 8);
    writer_->append(sorted[i], stride_);
  }
  ends_.push_back(writer_->bytes());
  count_ = 0;
}

void EventSort::close_runs() {
  if (count_ > 0) write_run();
  writer_->close(/*sync=*/false);
  writer_.reset();
  rows_.reset();
  file_ = FileHandle(path_, O_RDONLY);
}

std::vector<EventSort::Cursor> EventSort::open_runs() {
  const std::size_t share = merge_bytes_ / ends_.size();
  const std::size_t bytes = std::clamp<std::size_t>(share, stride_, std::size_t{1} << 22);
  std::vector<Cursor> cursors;
  std::int64_t begin = 0;
  for (const std::int64_t end : ends_) {
    cursors.push_back({RunReader(file_.get(), path_, begin, end, bytes), stride_});
    begin = end;
  }
  return cursors;
}

void EventSort::remove_runs() {
  file_.close();
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace turbogr::data
