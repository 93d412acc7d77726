// The catalogue's own ids beside the item table in a checkpoint, so that rows find their items
// again in another store.
#pragma once

#include <cstdint>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/data/store.h"
#include "turbogr/train/checkpoint.h"
#include "turbogr/train/named_tensor.h"

namespace turbogr::train {

// All ids as text, end to end. Made once a run.
class ItemNames {
 public:
  std::vector<NamedTensor> tensors(const data::Store& store);

 private:
  Tensor offsets_;  // [V + 1]
  Tensor text_;     // bytes
};

// Throws unless the checkpoint's items are the store's, in the same order.
void check_item_names(const Checkpoint& saved, const data::Store& store);

// Copies the rows of items that the checkpoint knows into `rows` [V, D], on the context's device;
// returns how many those are.
std::int64_t read_known_rows(const Context& ctx, const Checkpoint& saved, const data::Store& store,
                             Tensor& rows);

}  // namespace turbogr::train
