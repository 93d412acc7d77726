// The second step of prepare: the ids in the rows become dense indices, and rows outside the k-core
// go. Internal to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "turbogr/data/core_filter.h"
#include "turbogr/data/event_rows.h"
#include "turbogr/data/id_lookup.h"
#include "turbogr/data/interrupt.h"
#include "turbogr/data/prepare_parse.h"

namespace turbogr::data {

// Dense indices of every row of a log on the disk, in a file: made window by window when the ids
// are too many for a table in memory, or when the filter is going to read them often.
class IndexFile {
 public:
  // `field` is the row's user or item.
  IndexFile(EventRows& rows, const SortedIds& ids, std::size_t field, std::filesystem::path path,
            std::size_t table_bytes);
  ~IndexFile();
  IndexFile(const IndexFile&) = delete;
  IndexFile& operator=(const IndexFile&) = delete;

  void read(std::int64_t first_row, std::span<std::uint32_t> out) const;

 private:
  std::filesystem::path path_;
  FileHandle file_;
};

// Rows in memory hold indices after number(); rows on the disk get theirs on the way out.
class RowNumbering {
 public:
  RowNumbering(ThreadPool& pool, const PrepareOptions& options, const MemoryPlan& plan,
               ParsedLog& log, const std::filesystem::path& folder)
      : pool_(pool), options_(options), plan_(plan), log_(log), folder_(folder) {}

  void number();
  // If one is asked for. Rows on the disk may have got their indices in the meantime, and the
  // lookups been released.
  void find_core();
  const std::optional<CoreFilter>& core() const { return core_; }
  void release();  // the lookups and their files; the core stays
  // Whether for_each_row has nothing to change or leave out: the rows are in memory, and whole.
  bool done() const {
    return log_.rows->in_memory() && !core_ && log_.time_unit != TimeUnit::kNone;
  }

  // After number(): visit(row) for every row that stays, numbered, its time 0 when the log has
  // none.
  template <class Visit>
  void for_each_row(Visit&& visit);

 private:
  bool filtering() const { return options_.min_user > 1 || options_.min_item > 1; }
  void number_in_memory(const SortedIds& ids, std::size_t field);
  void number_both_in_memory();
  void scan(const PairBlock& block);
  void keep_items_of_tables();

  ThreadPool& pool_;
  const PrepareOptions& options_;
  const MemoryPlan& plan_;
  ParsedLog& log_;
  const std::filesystem::path& folder_;
  std::optional<IdLookup> user_lookup_;
  std::optional<IdLookup> item_lookup_;
  std::optional<IndexFile> user_file_;
  std::optional<IndexFile> item_file_;
  std::optional<CoreFilter> core_;
};

template <class Visit>
void RowNumbering::for_each_row(Visit&& visit) {
  const std::size_t stride = log_.rows->layout().stride();
  const bool timed = log_.time_unit != TimeUnit::kNone;
  std::vector<std::uint32_t> users;
  std::vector<std::uint32_t> items;
  log_.rows->for_each_block([&](std::byte* rows, std::size_t count, std::int64_t first) {
    check_interrupt();
    users.resize(count);
    items.resize(count);
    if (user_file_) user_file_->read(first, users);
    if (item_file_) item_file_->read(first, items);
    for (std::size_t i = 0; i < count; ++i) {
      std::byte* row = rows + i * stride;
      std::int64_t user = load_field<std::int64_t>(row, RowLayout::kUser);
      std::int64_t item = load_field<std::int64_t>(row, RowLayout::kItem);
      if (user_file_) {
        user = users[i];
      } else if (user_lookup_) {
        user = user_lookup_->find(user);
      }
      if (item_file_) {
        item = items[i];
      } else if (item_lookup_) {
        item = item_lookup_->find(item);
      }
      if (core_) {
        if (!core_->keeps_event(user, item)) continue;
        user = core_->users.index_of(user);
        item = core_->items.index_of(item);
      }
      store_field(row, RowLayout::kUser, user);
      store_field(row, RowLayout::kItem, item);
      if (!timed) store_field(row, RowLayout::kTime, std::int64_t{0});
      visit(row);
    }
  });
}

}  // namespace turbogr::data
