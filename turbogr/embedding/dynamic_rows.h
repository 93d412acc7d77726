// Rows for ids that nobody has counted: a hash map from id to row that grows. A row's number is the
// order of arrival; what it holds at first is not.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"
#include "turbogr/embedding/item_table.h"

namespace turbogr::embedding {

struct DynamicOptions {
  std::int64_t width = 64;
  SparseOptimiser optimiser = SparseOptimiser::kAdamW;
  std::uint64_t seed = 1;
  ops::RowStart start;
  std::int64_t first_capacity = 1024;  // rows; doubled when they are full
};

class DynamicTable {
 public:
  explicit DynamicTable(const DynamicOptions& options);

  std::int64_t size() const { return static_cast<std::int64_t>(ids_.size()); }  // ids known
  std::int64_t capacity() const { return table_.rows(); }
  std::span<const std::int64_t> ids() const { return ids_; }  // [size], by row

  // rows(i) is the row of ids(i); an id that is not known yet gets one, with its initial values and
  // no history. Ids are any but the most negative number. Memory handed out before may move.
  void find_or_add(const Context& ctx, View<const std::int64_t, 1> ids, View<std::int64_t, 1> rows);
  std::int64_t find(std::int64_t id) const;  // -1 when it is not known

  ItemTable& table() { return table_; }
  const ItemTable& table() const { return table_; }

 private:
  std::size_t slot_of(std::int64_t id) const;  // where it is, or belongs
  void grow_table();
  void grow_slots();

  DynamicOptions options_;
  ItemTable table_;
  std::vector<std::int64_t> ids_;
  // Open addressing, at most half full: ids and their rows.
  std::vector<std::int64_t> slot_ids_;
  std::vector<std::int64_t> slot_rows_;
};

}  // namespace turbogr::embedding
