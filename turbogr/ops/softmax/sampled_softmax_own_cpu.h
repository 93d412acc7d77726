// Shared by the kernels of tokens with negatives of their own.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "turbogr/ops/rows/row_simd.h"
#include "turbogr/ops/softmax/sampled_softmax_cpu.h"

namespace turbogr::ops::kernels {

inline constexpr std::int64_t kNegativeBatch = 256;    // negatives at a time
inline constexpr std::int64_t kMaxOwnPairs = 1 << 19;  // of a round: 12 MB of scratch in backward
inline constexpr std::int64_t kOwnTokenGrain = 8;

// Logits of up to kNegativeBatch of one token's negatives: plain, and as they enter the softmax.
template <class T>
struct NegativeBatch {
  const std::int32_t* rows = nullptr;
  std::int64_t count = 0;
  float logits[kNegativeBatch];
  float corrected[kNegativeBatch];

  // Those of `owner` from `begin` on, against a scaled query whose positive is `positive`.
  void fill(Cpu cpu, const SoftmaxProblem<T>& problem, const InverseNorms<float>& norms,
            const float* scaled_query, std::int32_t positive, std::int64_t owner,
            std::int64_t begin) {
    const SampledSoftmaxInputs<T>& in = problem.inputs;
    rows = &in.negatives(owner, begin);
    count = std::min(kNegativeBatch, in.negatives.shape[1] - begin);
    dot_negatives(cpu, problem, scaled_query, rows, count, logits);
    for (std::int64_t j = 0; j < count; ++j) {
      logits[j] *= norms.reading(rows[j]);
      corrected[j] = rows[j] == positive ? -std::numeric_limits<float>::infinity()
                                         : logits[j] - problem.correction(rows[j]);
    }
  }
};

// e^x summed without overflow: sum * e^largest.
struct RunningSum {
  float largest;
  float sum = 1.0f;

  // Changes x.
  void add(const RowTable& table, float* x, std::int64_t count) {
    const float higher = std::max(largest, table.max(x, count));
    sum = sum * std::exp(largest - higher) + table.exp_minus(x, count, higher);
    largest = higher;
  }
};

// Forward under NegativeSharing::kLogits.
template <class T>
void softmax_shared_logits(Cpu cpu, const SoftmaxProblem<T>& problem,
                           const SoftmaxOutput<T>& output);
std::size_t softmax_shared_logits_workspace_bytes(int threads, std::int64_t tokens,
                                                  std::int64_t width, std::int64_t num_negatives,
                                                  std::int64_t num_sharers);

}  // namespace turbogr::ops::kernels
