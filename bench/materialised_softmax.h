// The baseline of the fused sampled softmax: the straightforward way, which looks up all negatives
// into an [N, R, D] tensor, keeps it for backward and makes its gradient, as tensor frameworks do.
// It is spared what they add (a second copy for the unit rows): lengths are divided out in place.
// Our own threads, vector loops, lookup and gradient sums, so that what differs is the tensor.
//
// N tokens, R negatives, U items, D width. f32, on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/softmax/sampled_softmax.h"

namespace turbogr::bench {

struct SoftmaxSize {
  std::int64_t tokens = 0;
  std::int64_t negatives = 0;
  std::int64_t items = 0;
  std::int64_t width = 0;
};

class MaterialisedSoftmax {
 public:
  MaterialisedSoftmax(const Context& ctx, const SoftmaxSize& size);
  // Of all its own buffers, known before any is made.
  static std::size_t bytes(const SoftmaxSize& size);

  // inputs.negatives [N, R] are set. Adds to ditems, overwrites the rest.
  void forward_backward(const Context& ctx, const ops::SampledSoftmaxInputs<float>& inputs,
                        const ops::SoftmaxOptions& options, View<const float, 1> dloss,
                        View<float, 1> loss, Rows<float> dquery, Rows<float> ditems);

 private:
  void look_up(const Context& ctx, const ops::SampledSoftmaxInputs<float>& inputs,
               const ops::SoftmaxOptions& options);
  void token(SimdLevel simd, const ops::SampledSoftmaxInputs<float>& inputs,
             const ops::SoftmaxOptions& options, std::int64_t i, float dloss, float* loss,
             Rows<float> dquery);

  SoftmaxSize size_;
  Tensor query_, query_inverse_;  // unit rows [N, D] and 1 / |x|
  Tensor rows_, inverse_;         // [N * (R + 1), D]: positive and negatives of each token
  Tensor drows_;                  // their gradients
  Tensor logits_;                 // [N, R + 1]
  Tensor ids_, unique_, offsets_, positions_, group_;
};

}  // namespace turbogr::bench
