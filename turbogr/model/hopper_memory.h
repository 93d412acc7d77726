// What HSTU's attention takes on a Hopper GPU beyond what a model made on a CPU counts: for plans
// of GPUs that are made where there is none.
#pragma once

#include <cstdint>

#include "turbogr/model/layer_stack.h"

namespace turbogr::model {

// Bytes for pairs of tokens: of each layer, the bias that it keeps for its backward pass; and once
// for all, the room for bias and gradients while a call runs, in bands where sequences are long
// (ops/attention/hopper/attention_bands.h). Then f32 sums of dQ. 0 for FuXi, which has no pairs in
// memory.
std::int64_t hopper_attention_bytes(const ModelOptions& options, const ModelMemory& memory);

}  // namespace turbogr::model
