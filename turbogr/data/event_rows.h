// Events on their way from logs to a store: rows of fixed size, as many as fit in memory, the rest
// in one temporary file. Also the bounded buffers the later steps share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "turbogr/core/large_pages.h"
#include "turbogr/core/thread_pool.h"
#include "turbogr/data/file.h"

namespace turbogr::data {

// user, item and time as int64, then signal bits as uint32 if any, then float numbers.
struct RowLayout {
  bool signals = false;
  std::size_t num_numbers = 0;

  static constexpr std::size_t kUser = 0;
  static constexpr std::size_t kItem = 8;
  static constexpr std::size_t kTime = 16;
  static constexpr std::size_t kSignals = 24;
  std::size_t number(std::size_t i) const { return kSignals + (signals ? 4 : 0) + 4 * i; }
  std::size_t stride() const { return number(num_numbers); }
};

template <class T>
T load_field(const std::byte* row, std::size_t offset) {
  T value;
  std::memcpy(&value, row + offset, sizeof(T));
  return value;
}
template <class T>
void store_field(std::byte* row, std::size_t offset, T value) {
  std::memcpy(row + offset, &value, sizeof(T));
}

class EventRows {
 public:
  // Keeps `capacity` rows in memory; what goes beyond lies in `file`.
  EventRows(RowLayout layout, std::size_t capacity, std::filesystem::path file)
      : layout_(layout),
        stride_(layout.stride()),
        capacity_(std::max<std::size_t>(capacity, 1)),
        path_(std::move(file)),
        rows_(new std::byte[capacity_ * stride_]) {
    use_large_pages(rows_.get(), capacity_ * stride_);
  }

  const RowLayout& layout() const { return layout_; }
  std::int64_t size() const { return spilled_ + static_cast<std::int64_t>(count_); }

  // Room for one more row, to be filled before the next call.
  std::byte* add() {
    if (count_ == capacity_) spill();
    return rows_.get() + stride_ * count_++;
  }

  // Room for `count` more in one piece; null: there is none without writing rows out.
  std::byte* add_piece(std::size_t count) {
    if (count > capacity_ - count_) return nullptr;
    count_ += count;
    return rows_.get() + stride_ * (count_ - count);
  }

  // After the last row. Then either all rows are in memory, or all are in the file and the memory
  // is free again.
  void close() {
    if (spilled_ == 0) return;
    spill();
    writer_->close(/*sync=*/false);
    writer_.reset();
    rows_.reset();
  }

  bool in_memory() const { return spilled_ == 0; }
  std::byte* data() { return rows_.get(); }
  void shrink(std::size_t count) { count_ = count; }  // in memory: the first so many remain
  std::unique_ptr<std::byte[]> release_memory() { return std::move(rows_); }

  // Calls visit(rows, count, first_row) on consecutive pieces. In memory the pieces are the rows
  // themselves, and writing to them stays.
  template <class Visit>
  void for_each_block(Visit&& visit) {
    if (in_memory()) {
      for (std::size_t first = 0; first < count_; first += kRows) {
        visit(rows_.get() + first * stride_, std::min(kRows, count_ - first),
              static_cast<std::int64_t>(first));
      }
      return;
    }
    const FileHandle file(path_, 0 /* O_RDONLY */);
    const std::unique_ptr<std::byte[]> block(new std::byte[kRows * stride_]);
    for (std::int64_t first = 0; first < spilled_; first += std::int64_t{kRows}) {
      const auto count =
          static_cast<std::size_t>(std::min(static_cast<std::int64_t>(kRows), spilled_ - first));
      read_at(file.get(), {block.get(), count * stride_},
              first * static_cast<std::int64_t>(stride_), path_);
      visit(block.get(), count, first);
    }
  }

  // The same of rows in memory, several pieces at a time.
  template <class Visit>
  void for_each_block_at_once(ThreadPool& pool, Visit&& visit) {
    parallel_ranges(pool, static_cast<std::int64_t>(count_), std::int64_t{kRows},
                    [&](std::int64_t begin, std::int64_t end, int) {
                      visit(rows_.get() + static_cast<std::size_t>(begin) * stride_,
                            static_cast<std::size_t>(end - begin));
                    });
  }

  void remove_file() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

 private:
  static constexpr std::size_t kRows = 1 << 14;

  void spill() {
    if (!writer_) writer_.emplace(path_, std::size_t{1} << 12);
    writer_->append(rows_.get(), count_ * stride_);
    spilled_ += static_cast<std::int64_t>(count_);
    count_ = 0;
  }

  RowLayout layout_;
  std::size_t stride_;
  std::size_t capacity_;
  std::filesystem::path path_;
  std::unique_ptr<std::byte[]> rows_;
  std::size_t count_ = 0;
  std::int64_t spilled_ = 0;
  std::optional<FileWriter> writer_;
};

}  // namespace turbogr::data
