#include "turbogr/data/event_sort.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <utility>

namespace turbogr::data {
namespace {

// Least significant byte first; bytes that are the same in all keys cost nothing.
void radix_sort(std::vector<std::uint64_t>& keys, std::vector<std::uint32_t>& order) {
  const std::size_t count = keys.size();
  std::vector<std::array<std::uint32_t, 256>> histograms(8);
  for (const std::uint64_t key : keys) {
    for (std::size_t byte = 0; byte < 8; ++byte) ++histograms[byte][(key >> (8 * byte)) & 255];
  }
  std::vector<std::uint64_t> other_keys(count);
  std::vector<std::uint32_t> other_order(count);
  for (std::size_t byte = 0; byte < 8; ++byte) {
    auto& histogram = histograms[byte];
    const int shift = static_cast<int>(8 * byte);
    if (histogram[(keys[0] >> shift) & 255] == count) continue;
    std::uint32_t sum = 0;
    for (std::uint32_t& slot : histogram) sum += std::exchange(slot, sum);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t at = histogram[(keys[i] >> shift) & 255]++;
      other_keys[at] = keys[i];
      other_order[at] = order[i];
    }
    keys.swap(other_keys);
    order.swap(other_order);
  }
}

}  // namespace

std::vector<std::uint32_t> order_of(const std::byte* rows, std::size_t count, std::size_t stride,
                                    const SortRange& range) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  if (count == 0) return order;
  const auto span =
      static_cast<std::uint64_t>(range.last_time) - static_cast<std::uint64_t>(range.first_time);
  const int time_bits = static_cast<int>(std::bit_width(span));
  const int user_bits =
      static_cast<int>(std::bit_width(static_cast<std::uint64_t>(range.num_users)));
  const auto user_of = [&](std::size_t i) {
    return load_field<std::int64_t>(rows + i * stride, RowLayout::kUser);
  };
  const auto time_of = [&](std::size_t i) {
    return load_field<std::int64_t>(rows + i * stride, RowLayout::kTime);
  };
  if (time_bits + user_bits > 63) {
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(user_of(a), time_of(a)) < std::pair(user_of(b), time_of(b));
    });
    return order;
  }
  std::vector<std::uint64_t> keys(count);
  bool sorted = true;
  for (std::size_t i = 0; i < count; ++i) {
    keys[i] = (static_cast<std::uint64_t>(user_of(i)) << time_bits) +
              static_cast<std::uint64_t>(time_of(i) - range.first_time);
    sorted = sorted && (i == 0 || keys[i - 1] <= keys[i]);
  }
  if (!sorted) radix_sort(keys, order);
  return order;
}

EventSort::EventSort(RowLayout layout, std::size_t capacity, SortRange range,
                     std::filesystem::path file, std::size_t merge_bytes)
    : stride_(layout.stride()),
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
  const std::vector<std::uint32_t> order = order_of(rows_.get(), count_, stride_, range_);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i + 8 < order.size()) __builtin_prefetch(rows_.get() + stride_ * order[i + 8]);
    writer_->append(rows_.get() + stride_ * order[i], stride_);
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
