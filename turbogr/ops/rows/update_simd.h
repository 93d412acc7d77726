// The inner loop of AdamW, one table per instruction set; also used row by row for lazy embedding
// updates.
#pragma once

#include <cstdint>

#include "turbogr/core/simd_level.h"

namespace turbogr {

struct AdamWCoefficients {
  float beta1, beta2, epsilon;
  float step_size;     // rate / (1 - beta1^t)
  float second_scale;  // 1 / (1 - beta2^t)
  float decay;         // rate * decay
  float gradient_scale;
};

struct UpdateTable {
  void (*adamw)(const AdamWCoefficients&, const float* gradient, std::int64_t count, float* weight,
                float* first_moment, float* second_moment);
  // weight = weight * keep - step * gradient: SGD and row-wise AdaGrad, which differ in the step.
  void (*descend)(float keep, float step, const float* gradient, std::int64_t count, float* weight);
  double (*squared_sum)(const float* values, std::int64_t count);
};

TGR_SIMD_TABLES(UpdateTable, update_table)

}  // namespace turbogr
