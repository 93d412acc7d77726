// Events by (user, time, input order), in bounded memory: full buffers are sorted and written as
// runs, and the runs merged. The order of equal events is the order they came in, whatever the
// memory, so the result does not depend on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

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

// The order of `count` rows: places of the first, second, ... Stable. Takes 24 bytes a row.
std::vector<std::uint32_t> order_of(const std::byte* rows, std::size_t count, std::size_t stride,
                                    const SortRange& range);

class EventSort {
 public:
  // Buffers of `capacity` rows; `merge_bytes` bounds what merging reads ahead.
  EventSort(RowLayout layout, std::size_t capacity, SortRange range, std::filesystem::path file,
            std::size_t merge_bytes);

  // A slot for the next row, to be filled before the next call.
  std::byte* add() {
    if (rows_ == nullptr) rows_.reset(new std::byte[capacity_ * stride_]);
    if (count_ == capacity_) write_run();
    return rows_.get() + stride_ * count_++;
  }
  // Takes over rows that are all in memory.
  void adopt(std::unique_ptr<std::byte[]> rows, std::size_t count);

  std::size_t num_runs() const { return ends_.size(); }

  // Calls visit(row) for every row in order, once.
  template <class Visit>
  void drain(Visit&& visit) {
    if (ends_.empty()) {
      const std::vector<std::uint32_t> order = order_of(rows_.get(), count_, stride_, range_);
      for (std::size_t i = 0; i < order.size(); ++i) {
        if (i + 8 < order.size()) {
          __builtin_prefetch(rows_.get() + stride_ * order[i + 8]);
        }
        visit(static_cast<const std::byte*>(rows_.get() + stride_ * order[i]));
      }
      return;
    }
    close_runs();
    std::vector<Cursor> cursors = open_runs();
    merge_runs(cursors, [&](const Cursor& cursor) { visit(cursor.row); });
    remove_runs();
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
