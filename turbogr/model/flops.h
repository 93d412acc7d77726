// FLOPs of a training step, in the two conventions that are quoted, never one without its name:
//   causal  real lengths, the causal half of every n x n product; the honest headline
//   paper   as causal, but every n x n product counted full, n * S a sequence with S the nominal
//   length
// Forward and backward together are three times forward; recomputing counts nothing; embedding,
// loss, normalisation and elementwise work are not counted.
#pragma once

#include <cstdint>
#include <span>

#include "turbogr/model/model_options.h"

namespace turbogr::model {

struct Flops {
  double causal = 0;
  double paper = 0;
};

// Of one forward pass over sequences of these lengths.
Flops forward_flops(const ModelOptions& options, std::span<const std::int64_t> lengths);
// Forward and backward.
Flops step_flops(const ModelOptions& options, std::span<const std::int64_t> lengths);

}  // namespace turbogr::model
