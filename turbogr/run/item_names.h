// The catalogue's own ids beside the item table in a checkpoint, so that rows find their items
// again in another store; and which of the rows were trained.
#pragma once

#include <cstdint>
#include <vector>

#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/core/context.h"
#include "turbogr/core/named_tensor.h"
#include "turbogr/core/tensor.h"
#include "turbogr/data/store.h"
#include "turbogr/embedding/item_table.h"
#include "turbogr/embedding/sharding.h"
#include "turbogr/run/config.h"

namespace turbogr::run {

// All ids as text, end to end, and a mark for each item that occurs in training. Made once a run.
class ItemNames {
 public:
  // What the run goes on or starts from has trained items, too. (An older program's does not say.)
  void add_trained(const checkpoint::Checkpoint& saved, const data::Store& store);
  std::vector<NamedTensor> tensors(const Config& config, const data::Store& store);

 private:
  Tensor offsets_;                            // [V + 1]
  Tensor text_;                               // bytes
  Tensor trained_;                            // [V], 1 or 0
  std::vector<std::uint8_t> trained_before_;  // [V], or empty
};

// Whether the checkpoint's items are the store's, in the same order.
bool has_same_items(const checkpoint::Checkpoint& saved, const data::Store& store);
// Throws unless they are.
void check_item_names(const checkpoint::Checkpoint& saved, const Config& config,
                      const data::Store& store);

// [V] of the store: 1 for items whose rows the checkpoint's run has trained, as inputs or targets;
// 0 for the others, whose rows are as random as at its start. A checkpoint of an older program does
// not say: then it is the items it knows that occur in the store's training part, with a remark in
// the log.
std::vector<std::uint8_t> trained_items(const checkpoint::Checkpoint& saved, const Config& config,
                                        const data::Store& store);

// Copies the rows of items that the checkpoint knows into a rank's part of a table; returns how
// many those are in the whole.
std::int64_t read_known_rows(const Context& ctx, const checkpoint::Checkpoint& saved,
                             const data::Store& store, const embedding::Sharding& sharding,
                             int index, embedding::ItemTable& part);

}  // namespace turbogr::run
