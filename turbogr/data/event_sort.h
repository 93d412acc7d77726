// Events by (user, time, input order), in bounded memory: full buffers are sorted and written as
// runs, and the runs merged. The order of equal events is the order they came in, so the result
// depends neither on the memory nor on the threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "turbogr/core/thread_pool.h"
#include "turbogr/data/event_rows.h"
#include "turbogr/data/interrupt.h"
#include "turbogr/data/run_reader.h"

namespace turbogr::data {

// What the sort key is made of: users below num_users, times in [first, last].
struct SortRange {
  std::int64_t num_users = 0;
  std::int64_t first_time = 0;
  std::int64_t last_time = 0;
};

// Rows in order, wherever they lie.
struct SortedRows {
  const std::byte* rows = nullptr;
  std::size_t stride = 0;
  const std::uint32_t* order = nullptr;  // places of the first, second, ...; null: as they lie
  std::size_t count = 0;

  const std::byte* operator[](std::size_t i) const {
    return rows + stride * (order != nullptr ? order[i] : i);
  }
  void prefetch(std::size_t i) const {
    if (i < count) __builtin_prefetch((*this)[i]);
  }
};

// The places of the first, second, ... of `count` rows, or nothing where they are in order already.
// Stable. Takes up to 24 bytes a row.
std::unique_ptr<std::uint32_t[]> order_of(ThreadPool& pool, const std::byte* rows,
                                          std::size_t count, std::size_t stride,
                                          const SortRange& range);

class EventSort {
 public:
  // Buffers of `capacity` rows; `merge_bytes` bounds what merging reads ahead.
  EventSort(ThreadPool& pool, RowLayout layout, std::size_t capacity, SortRange range,
            std::filesystem::path file, std::size_t merge_bytes);

  // A slot for the next row, to be filled before the next call.
  std::byte* add() {
    if (rows_ == nullptr) rows_.reset(new std::byte[capacity_ * stride_]);
    if (count_ == capacity_) write_run();
    return rows_.get() + stride_ * count_++;
  }
  // Takes over rows that are all in memory.
  void adopt(std::unique_ptr<std::byte[]> rows, std::size_t count);

  std::size_t num_runs() const { return ends_.size(); }

  // Calls visit(SortedRows) on consecutive blocks of all rows in order, once.
  template <class Visit>
  void drain_blocks(Visit&& visit) {
    if (ends_.empty()) {
      const auto order = order_of(pool_, rows_.get(), count_, stride_, range_);
      for (std::size_t first = 0; first < count_; first += kBlock) {
        const std::size_t count = std::min(kBlock, count_ - first);
        visit(order != nullptr
                  ? SortedRows{rows_.get(), stride_, order.get() + first, count}
                  : SortedRows{rows_.get() + first * stride_, stride_, nullptr, count});
      }
      return;
    }
    close_runs();
    std::vector<Cursor> cursors = open_runs();
    const std::size_t size = std::clamp<std::size_t>(merge_bytes_ / 4 / stride_, 1, kBlock);
    const std::unique_ptr<std::byte[]> block(new std::byte[size * stride_]);
    std::size_t count = 0;
    const auto hand_over = [&] {
      if (count > 0) visit(SortedRows{block.get(), stride_, nullptr, count});
      count = 0;
    };
    merge_runs(cursors, [&](const Cursor& cursor) {
      std::memcpy(block.get() + stride_ * count, cursor.row, stride_);
      if (++count == size) hand_over();
    });
    hand_over();
    remove_runs();
  }
  // Calls visit(row) for every row in order, once.
  template <class Visit>
  void drain(Visit&& visit) {
    drain_blocks([&](const SortedRows& block) {
      for (std::size_t i = 0; i < block.count; ++i) {
        block.prefetch(i + 8);
        visit(block[i]);
      }
    });
  }

 private:
  struct Cursor {
    RunReader reader;
    std::size_t stride;
    const std::byte* row = nullptr;
    std::int64_t user = 0;
    std::int64_t time = 0;

    bool advance() {
      row = reader.take(stride);
      if (row == nullptr) return false;
      user = load_field<std::int64_t>(row, RowLayout::kUser);
      time = load_field<std::int64_t>(row, RowLayout::kTime);
      return true;
    }
    bool operator<(const Cursor& other) const {
      return user < other.user || (user == other.user && time < other.time);
    }
  };

  void write_run();
  void close_runs();
  std::vector<Cursor> open_runs();
  void remove_runs();

  static constexpr std::size_t kBlock = 1 << 16;

  ThreadPool& pool_;
  std::size_t stride_;
  std::size_t capacity_;
  SortRange range_;
  std::filesystem::path path_;
  std::size_t merge_bytes_;
  std::unique_ptr<std::byte[]> rows_;
  std::size_t count_ = 0;
  std::unique_ptr<FileWriter> writer_;
  FileHandle file_;
  std::vector<std::int64_t> ends_;  // of the runs, in bytes
};

}  // namespace turbogr::data
