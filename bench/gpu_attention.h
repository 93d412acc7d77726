// Attention on a GPU through the operators: checked against double on a sample, then timed by
// events.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"

namespace turbogr::bench {

struct GpuAttentionProblem {
  std::vector<std::int64_t> lengths;
  int heads = 8;
  std::int64_t head_dim = 128;
  bool position = false;
  bool time = false;
  bool fuxi = false;
  DType dtype = DType::kBf16;
  std::uint64_t seed = 1;

  std::int64_t tokens() const;
  std::int64_t longest() const;
  // Causal: n (n + 1) / 2 pairs a sequence. Backward counts each product of forward 2.5 times,
  // those of FuXi's tables, which need no scores again, twice.
  double forward_flops() const;
  double backward_flops() const;
};

struct GpuAttentionTimes {
  Timing plan, forward, backward;
  double error = 0;          // of the sample, relative to its size
  double allowed_error = 0;  // above it nothing is timed
  std::size_t plan_bytes = 0;
};

// Throws where the answers are wrong. Inputs are rotated so that they do not fit the GPU's cache.
GpuAttentionTimes measure_gpu_attention(const Context& ctx, const GpuAttentionProblem& problem,
                                        int repeats);

// `uniform:L:B`, B sequences of L tokens, or a file with one length a line.
std::vector<std::int64_t> batch_lengths(const std::string& text);

}  // namespace turbogr::bench
