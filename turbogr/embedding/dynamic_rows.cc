#include "turbogr/embedding/dynamic_rows.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/embedding/mix.h"
#include "turbogr/ops/rows/random_rows.h"

namespace turbogr::embedding {
namespace {

constexpr std::int64_t kFree = std::numeric_limits<std::int64_t>::min();
constexpr std::size_t kFirstSlots = 64;

void copy_leading(const Tensor& from, Tensor& to) {
  if (from.bytes() > 0) std::memcpy(to.data(), from.data(), from.bytes());
}

}  // namespace

DynamicTable::DynamicTable(const DynamicOptions& options)
    : options_(options),
      table_(std::max<std::int64_t>(1, options.first_capacity), options.width, options.optimiser),
      slot_ids_(kFirstSlots, kFree),
      slot_rows_(kFirstSlots, -1) {}

std::size_t DynamicTable::slot_of(std::int64_t id) const {
  const std::size_t mask = slot_ids_.size() - 1;
  std::size_t slot = mixed(static_cast<std::uint64_t>(id)) & mask;
  while (slot_ids_[slot] != kFree && slot_ids_[slot] != id) slot = (slot + 1) & mask;
  return slot;
}

std::int64_t DynamicTable::find(std::int64_t id) const { return slot_rows_[slot_of(id)]; }

void DynamicTable::find_or_add(const Context& ctx, View<const std::int64_t, 1> ids,
                               View<std::int64_t, 1> rows) {
  TGR_CHECK(rows.shape[0] == ids.shape[0], "dynamic table: ", rows.shape[0], " rows for ",
            ids.shape[0], " ids");
  const std::int64_t known = size();
  for (std::int64_t i = 0; i < ids.shape[0]; ++i) {
    const std::int64_t id = ids(i);
    TGR_CHECK(id != kFree, "dynamic table: id ", id, " at position ", i, " cannot be one");
    std::size_t slot = slot_of(id);
    if (slot_ids_[slot] == kFree) {
      if (2 * (ids_.size() + 1) > slot_ids_.size()) {
        grow_slots();
        slot = slot_of(id);
      }
      slot_ids_[slot] = id;
      slot_rows_[slot] = size();
      ids_.push_back(id);
    }
    rows(i) = slot_rows_[slot];
  }
  while (size() > capacity()) grow_table();
  auto* weights = reinterpret_cast<float*>(table_.weight_tensor().data());
  parallel_ranges(ctx.pool(), size() - known, 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = known + begin; row < known + end; ++row) {
      ops::random_row(options_.seed, ids_[static_cast<std::size_t>(row)], options_.start,
                      options_.width, weights + row * options_.width);
    }
  });
}

void DynamicTable::grow_slots() {
  const std::size_t slots = slot_ids_.size() * 2;
  slot_ids_.assign(slots, kFree);
  slot_rows_.assign(slots, -1);
  for (std::size_t row = 0; row < ids_.size(); ++row) {
    const std::size_t slot = slot_of(ids_[row]);
    slot_ids_[slot] = ids_[row];
    slot_rows_[slot] = static_cast<std::int64_t>(row);
  }
}

void DynamicTable::grow_table() {
  ItemTable larger(2 * table_.rows(), options_.width, options_.optimiser);
  copy_leading(table_.weight_tensor(), larger.weight_tensor());
  copy_leading(table_.first_moment(), larger.first_moment());
  copy_leading(table_.second_moment(), larger.second_moment());
  table_ = std::move(larger);
}

}  // namespace turbogr::embedding
