// Copies on the device of those rows of a host's table that training uses most, with their
// optimiser's state. Which rows these are is settled once, by how often items occur: popularity
// hardly changes while a model trains, and a cache that never evicts moves nothing by itself. While
// steps run the copies are ahead of the table; write_back brings them home.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/planned_bytes.h"
#include "turbogr/core/tensor.h"
#include "turbogr/embedding/item_table.h"

namespace turbogr::embedding {

// The `most` items met most often, those met never left out; of equals the lower id.
std::vector<std::int64_t> most_used_rows(std::span<const std::int64_t> counts, std::int64_t most);

class RowCache {
 public:
  // `rows` of a table [V, D] in f32, distinct; none: a cache that has nothing.
  RowCache(const Context& ctx, std::int64_t table_rows, std::int64_t width,
           SparseOptimiser optimiser, std::span<const std::int64_t> rows);

  bool empty() const { return slots_.empty(); }
  // Where the copy of a row is, -1 where there is none.
  std::int32_t slot(std::int64_t id) const {
    return slots_.empty() ? -1 : slots_[static_cast<std::size_t>(id)];
  }
  ItemTable& copies() { return copies_; }

  void load(const Context& ctx, ItemTable& table);
  void write_back(const Context& ctx, ItemTable& table);

  PlannedBytes bytes() const;

 private:
  std::vector<std::int32_t> slots_;  // [V]
  Tensor ids_, places_;              // of the rows, as int64 and as int32, on the device
  ItemTable copies_;
};

}  // namespace turbogr::embedding
