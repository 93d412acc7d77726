// The baseline of materialised_softmax.h on a GPU, in bf16: [N, R + 1, D] rows, looked up and
// divided by their lengths, kept for backward, and their gradient of the same size. Rows are read
// and written 16 bytes a thread; gradients of equal items are summed by the operators that the
// engine uses for its lookups.
#pragma once

#include <cstddef>

#include "bench/materialised_softmax.h"
#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/ops/softmax/sampled_softmax.h"

namespace turbogr::bench {

// D is a multiple of eight.
class MaterialisedSoftmaxCuda {
 public:
  MaterialisedSoftmaxCuda(const Context& ctx, const SoftmaxSize& size);
  static std::size_t bytes(const Context& ctx, const SoftmaxSize& size);

  // As MaterialisedSoftmax.
  void forward_backward(const Context& ctx, const ops::SampledSoftmaxInputs<bf16>& inputs,
                        const ops::SoftmaxOptions& options, View<const float, 1> dloss,
                        View<float, 1> loss, Rows<bf16> dquery, Rows<float> ditems);

 private:
  SoftmaxSize size_;
  Tensor rows_, drows_;  // [N * (R + 1), D]
  Tensor inverse_;       // [N * (R + 1)]
  Tensor logits_;        // [N, R + 1]
  Tensor ids_, unique_, offsets_, positions_, group_;
};

}  // namespace turbogr::bench
