// The baseline: HSTU and FuXi attention as a padded stack computes them. Every sequence padded to
// the batch's longest, heads apart ([B, H, S, d]), whole S x S maps from batched oneDNN products,
// vectorised SiLU between them, scores kept for the backward pass. Same threads, same GEMM library
// as the jagged operators; the copy into the padded layout is not counted against it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"

namespace turbogr::bench {

struct PaddedProblem {
  std::vector<std::int64_t> lengths;
  int heads = 1;
  std::int64_t head_dim = 0;
  double norm_length = 1;
  bool fuxi = false;  // three maps instead of biases; out is [pos | time | latent] a head
  bool with_position = true;
  bool with_time = true;
  DType dtype = DType::kF32;
};

class PaddedAttention {
 public:
  PaddedAttention(const Context& ctx, const PaddedProblem& problem);
  ~PaddedAttention();

  // Copies jagged [N, H * d] tensors into the padded layout, tables and times as they are.
  void set_inputs(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& position,
                  const Tensor& time, const std::vector<std::int64_t>& key_times,
                  const std::vector<std::int64_t>& query_times, const Tensor& dout);
  void forward();
  void backward();  // after forward

  // Back in the jagged layout, in f32, for checking.
  Tensor out() const;
  Tensor dq() const;
  Tensor dk() const;
  Tensor dv() const;
  Tensor dposition() const;
  Tensor dtime() const;
  std::size_t bytes() const;  // all it holds, inputs included

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace turbogr::bench
