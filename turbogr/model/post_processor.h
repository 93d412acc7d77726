// What a ranking model makes of its layers' result at targets before it meets the items:
//
//   kTime   LayerNorm([x | clock features of the target's time] W + b)
//   kLayer  LayerNorm(x)
//   kL2     x / max(|x|, 1e-6)
//
//   PostProcessor<float> post(ctx, {.kind = PostKind::kTime, .width = 64, .targets = 2048},
//   params); layers.forward(ctx, ..., post.input(m)); Rows<const float> r = post.forward(ctx,
//   params, times); Rows<const float> dx = post.backward(ctx, params, dr);    // writes over dr
//
// M targets, D the layers' width.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/model/parameters.h"
#include "turbogr/model/ranking_options.h"
#include "turbogr/model/weight_matrix.h"
#include "turbogr/ops/dense/norm.h"

namespace turbogr::model {

struct PostOptions {
  PostKind kind = PostKind::kTime;
  std::int64_t width = 0;    // D
  std::int64_t targets = 0;  // of the largest step
  bool inference = false;    // forward alone
};

template <class T>
class PostProcessor {
 public:
  PostProcessor(const Context& ctx, const PostOptions& options, ParameterSet<T>& parameters);

  void refresh(const Context& ctx, const ParameterSet<T>& parameters);

  // [M, D], to be filled by the layers; it stays until the next forward.
  Rows<T> input(std::int64_t targets);
  Rows<const T> input(std::int64_t targets) const;
  // times [M], seconds. The result [M, D] stays until the next forward.
  Rows<const T> forward(const Context& ctx, const ParameterSet<T>& parameters,
                        View<const std::int64_t, 1> times);
  Rows<const T> result(std::int64_t targets) const;
  // Of the last forward: the gradient of its input. Writes over dresult; adds to the parameters'
  // gradients.
  Rows<const T> backward(const Context& ctx, ParameterSet<T>& parameters, Rows<T> dresult);

  std::size_t bytes() const;
  std::size_t workspace_bytes(const Context& ctx) const;

 private:
  bool norms() const { return options_.kind != PostKind::kL2; }
  ops::NormOptions<T> norm_options(const ParameterSet<T>& parameters) const;

  PostOptions options_;
  std::optional<WeightMatrix<T>> weight_;  // kTime's
  int bias_ = -1, norm_weight_ = -1, norm_bias_ = -1;
  Tensor input_, dinput_;  // [M, D], kTime's with the clock's columns
  Tensor linear_;          // [M, D], kTime's before its norm
  Tensor result_;          // [M, D]
  Tensor mean_, scale_;    // [M]; the scale is 1 / deviation, or 1 / length
};

}  // namespace turbogr::model
