// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization") over f32 master weights:
//   m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,
//   w = w - rate * (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay * w)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"

namespace turbogr::optim {

struct AdamWOptions {
  double rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.98;
  double epsilon = 1e-8;
  double decay = 0;
  std::int64_t step = 1;      // counted from 1: corrects the moments' start at zero
  double gradient_scale = 1;  // clipping and averaging, applied to g on the way in
};

// A run of `count` weights; all of one length.
struct AdamWSlice {
  float* weight = nullptr;
  const float* gradient = nullptr;
  float* first_moment = nullptr;
  float* second_moment = nullptr;
  std::int64_t count = 0;
  double decay_factor = 1;  // of options.decay: 0 for biases, norms and tables
};

void adamw(const Context& ctx, std::span<const AdamWSlice> slices, const AdamWOptions& options);

// Sum of squares over all gradients, in f64 and in fixed order; not finite when any of them is not.
double squared_norm(const Context& ctx, std::span<const AdamWSlice> slices);
std::size_t squared_norm_workspace_bytes(std::span<const AdamWSlice> slices);

}  // namespace turbogr::optim
