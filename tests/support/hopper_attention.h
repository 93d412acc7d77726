// Checks of the Hopper kernels themselves, so that the portable ones cannot stand in for them.
#pragma once

#include <array>
#include <cmath>
#include <iterator>

#include "tests/support/cuda_attention.h"
#include "tests/support/rounded_attention.h"
#include "turbogr/ops/attention/hopper/attention_hopper.h"

namespace turbogr::test {

inline bool hopper_there(ops::AttentionKind kind) {
  const ops::AttentionShape shape = {.device = Device::kCuda,
                                     .tokens = 1,
                                     .batch = 1,
                                     .max_length = 1,
                                     .query_width = 64,
                                     .value_width = 64};
  return ops::hopper_serves<bf16>(kind, shape);
}

// The size of a difference, in the root of the mean square: the largest is a matter of luck in
// bf16.
inline double root_mean_square(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    sum += (element(a, i) - element(b, i)) * (element(a, i) - element(b, i));
  }
  return a.size() == 0 ? 0 : std::sqrt(sum / static_cast<double>(a.size()));
}

// Errors against the reference in double, for each of kAttentionParts, over the reference's size.
struct HopperError {
  double fast = 0;
  double plain = 0;  // of a plain implementation in bf16
};
using HopperErrors = std::array<HopperError, std::size(kAttentionParts)>;

inline HopperErrors hopper_errors(const AttentionCase& shape, const GpuRun& run) {
  const auto kind = shape.fuxi ? ops::AttentionKind::kFuxi : ops::AttentionKind::kHstu;
  const AttentionInputs<bf16> in = attention_inputs<bf16>(shape);
  const Context ctx({.device = Device::kCuda});
  GpuAttention<bf16> gpu(ctx, in, run);
  const Cuda cuda{ctx.stream(), ctx.workspace()};
  EXPECT_TRUE(ops::hopper_attention(cuda, kind, gpu.problem(), gpu.out()));
  EXPECT_TRUE(
      ops::hopper_attention_backward(cuda, kind, gpu.problem(), gpu.dout(), gpu.gradients()));
  const AttentionResults fast = gpu.results(ctx);
  const AttentionResults plain = run_rounded_attention(in);
  const AttentionResults exact = run_attention_reference(converted_inputs<double>(in));
  HopperErrors errors;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    const auto part = kAttentionParts[i].tensor;
    const Tensor& reference = exact.*part;
    const double size = root_mean_square(reference, Tensor(DType::kF64, reference.shape()));
    if (size == 0) continue;
    errors[i] = {root_mean_square(fast.*part, reference) / size,
                 root_mean_square(plain.*part, reference) / size};
  }
  return errors;
}

// As close to the reference as a plain implementation in bf16.
inline void expect_hopper_matches(const AttentionCase& shape,
                                  const GpuRun& run = {.aligned = true}) {
  const HopperErrors errors = hopper_errors(shape, run);
  for (std::size_t i = 0; i < errors.size(); ++i) {
    EXPECT_LE(errors[i].fast, 2 * errors[i].plain + 0x1p-9) << kAttentionParts[i].name;
  }
}

}  // namespace turbogr::test
