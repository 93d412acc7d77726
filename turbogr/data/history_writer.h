// The last step of prepare: sorted rows to the columns of a store. Internal to it.
#pragma once

#include <cstdint>
#include <vector>

#include "turbogr/core/thread_pool.h"
#include "turbogr/data/core_filter.h"
#include "turbogr/data/event_sort.h"
#include "turbogr/data/id_lookup.h"
#include "turbogr/data/prepare_parse.h"
#include "turbogr/data/store_writer.h"

namespace turbogr::data {

class HistoryWriter {
 public:
  // `users`: those that stay; null: all.
  HistoryWriter(ThreadPool& pool, StoreWriter& writer, const ParsedLog& log,
                const Survivors* users);

  // The next rows in the order of users and times.
  void add(const SortedRows& rows);

 private:
  void gather(const SortedRows& rows);
  void begin_users(const SortedRows& rows);
  void begin_next_user(std::int64_t event);

  ThreadPool& pool_;
  StoreWriter& writer_;
  const ParsedLog& log_;
  const Survivors* users_;
  IdStream ids_;
  RowLayout layout_;
  std::int64_t next_id_ = 0;
  std::int64_t user_ = -1;  // of the last row
  // Of the rows at hand.
  std::vector<std::int64_t> items_;
  std::vector<std::int64_t> times_;
  std::vector<std::uint32_t> signals_;
  std::vector<std::vector<float>> numbers_;
  std::vector<std::vector<std::uint32_t>> begins_;  // of users, a piece each
  Events events_;
};

}  // namespace turbogr::data
