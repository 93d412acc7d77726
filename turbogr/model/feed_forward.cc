#include "turbogr/model/feed_forward.h"

#include <algorithm>
#include <string>

#include "turbogr/model/buffers.h"
#include "turbogr/ops/dense/dropout.h"
#include "turbogr/ops/dense/norm.h"
#include "turbogr/ops/dense/swiglu.h"

namespace turbogr::model {

template <class T>
FeedForwardSaved<T>::FeedForwardSaved(const ModelOptions& o, std::int64_t capacity, Device device)
    : normed(dtype_of<T>(), {capacity, o.width}, device),
      gates(dtype_of<T>(), {capacity, 2 * o.feed_forward}, device),
      hidden(dtype_of<T>(), {capacity, o.feed_forward}, device),
      rstd(dtype_of<Accum<T>>(), {capacity}, device) {}

template <class T>
std::size_t FeedForwardSaved<T>::bytes() const {
  return normed.bytes() + gates.bytes() + hidden.bytes() + rstd.bytes();
}

template <class T>
FeedForwardScratch<T>::FeedForwardScratch(const ModelOptions& o, std::int64_t capacity,
                                          Device device)
    : dhidden(dtype_of<T>(), {capacity, o.feed_forward}, device),
      dgates(dtype_of<T>(), {capacity, 2 * o.feed_forward}, device),
      dnormed(dtype_of<T>(), {capacity, o.width}, device) {}

template <class T>
std::size_t FeedForwardScratch<T>::bytes() const {
  return dhidden.bytes() + dgates.bytes() + dnormed.bytes();
}

template <class T>
FeedForward<T>::FeedForward(const ModelOptions& o, int layer, ParameterSet<T>& parameters)
    : options_(o),
      layer_(layer),
      gates_(parameters, {.name = "layers." + std::to_string(layer) + ".feed_forward_gates",
                          .shape = {o.width, 2 * o.feed_forward},
                          .init = Init::kUniform,
                          .scale = xavier_bound(o.width, o.feed_forward),
                          .decay = true}),
      output_(parameters, {.name = "layers." + std::to_string(layer) + ".feed_forward_output",
                           .shape = {o.feed_forward, o.width},
                           .init = Init::kUniform,
                           .scale = xavier_bound(o.feed_forward, o.width),
                           .decay = true}) {
  if (o.affine_norms) {
    norm_weight_ =
        parameters.add({.name = "layers." + std::to_string(layer) + ".feed_forward_norm_weight",
                        .shape = {o.width},
                        .init = Init::kOne});
  }
}

template <class T>
void FeedForward<T>::use_fp8(const Context& ctx, const ParameterSet<T>& parameters,
                             std::int64_t capacity, Fp8Shared<T>& shared) {
  gates_.use_fp8(ctx, parameters, capacity, shared);
  output_.use_fp8(ctx, parameters, capacity, shared);
}

template <class T>
void FeedForward<T>::refresh(const Context& ctx, const ParameterSet<T>& parameters) {
  gates_.refresh(ctx, parameters);
  output_.refresh(ctx, parameters);
}

template <class T>
void FeedForward<T>::list_rounded(std::vector<T*>& rounded) {
  rounded[static_cast<std::size_t>(gates_.index())] = gates_.rounded();
  rounded[static_cast<std::size_t>(output_.index())] = output_.rounded();
}

template <class T>
void FeedForward<T>::forward(const Context& ctx, const ParameterSet<T>& parameters,
                             const StepInput& step, Rows<const T> x, FeedForwardSaved<T>& saved,
                             Rows<T> y) const {
  const std::int64_t n = x.rows;
  const std::int64_t f = options_.feed_forward;
  const Rows<T> normed = first_rows<T>(saved.normed, n);
  const Rows<T> gates = first_rows<T>(saved.gates, n);
  const Rows<T> hidden = first_rows<T>(saved.hidden, n);
  ops::NormOptions<T> norm = {.kind = ops::NormKind::kRms};
  if (norm_weight_ >= 0) norm.weight = parameters.value(norm_weight_).template view<Accum<T>, 1>();

  const ops::DropoutOptions dropout = step.dropout(options_.dropout, layer_, 1);
  const bool drops = dropout.rate > 0;
  ops::norm<T>(ctx, x, norm, normed, {.rstd = first_values<Accum<T>>(saved.rstd, n)},
               drops ? ops::Fp8Rows<T>{} : gates_.fp8_input(step, n));
  if (drops) ops::dropout<T>(ctx, normed, dropout, normed);
  gates_.multiply(ctx, step, normed, {}, gates);
  ops::swiglu<T>(ctx, gates.columns(0, f), gates.columns(f, f), hidden, output_.fp8_input(step, n));
  output_.multiply(ctx, step, hidden, {.residual = x}, y);
}

template <class T>
void FeedForward<T>::backward(const Context& ctx, ParameterSet<T>& parameters,
                              const StepInput& step, Rows<const T> x,
                              const FeedForwardSaved<T>& saved, Rows<const T> dy,
                              FeedForwardScratch<T>& scratch, Rows<T> dx) const {
  const std::int64_t n = x.rows;
  const std::int64_t f = options_.feed_forward;
  const Rows<const T> gates = first_rows<T>(saved.gates, n);
  const Rows<T> dhidden = first_rows<T>(scratch.dhidden, n);
  const Rows<T> dgates = first_rows<T>(scratch.dgates, n);
  const Rows<T> dnormed = first_rows<T>(scratch.dnormed, n);

  output_.multiply_backward(ctx, step, first_rows<T>(saved.hidden, n), dy,
                            {.dx = dhidden, .dw = output_.gradient(parameters)});
  ops::swiglu_backward<T>(ctx, gates.columns(0, f), gates.columns(f, f), dhidden,
                          dgates.columns(0, f), dgates.columns(f, f), gates_.fp8_gradient(step, n));
  gates_.multiply_backward(ctx, step, first_rows<T>(saved.normed, n), dgates,
                           {.dx = dnormed, .dw = gates_.gradient(parameters)});
  const ops::DropoutOptions dropout = step.dropout(options_.dropout, layer_, 1);
  if (dropout.rate > 0) ops::dropout_backward<T>(ctx, dnormed, dropout, dnormed);

  ops::NormOptions<T> norm = {.kind = ops::NormKind::kRms};
  ops::NormGradients<T> gradients = {.dx = dx, .residual = dy};
  if (norm_weight_ >= 0) {
    norm.weight = parameters.value(norm_weight_).template view<Accum<T>, 1>();
    gradients.dweight = parameters.gradient(norm_weight_).template view<Accum<T>, 1>();
  }
  ops::norm_backward<T>(ctx, x, dnormed, norm, {.rstd = first_values<Accum<T>>(saved.rstd, n)},
                        gradients);
}

template <class T>
std::size_t FeedForward<T>::workspace_bytes(const Context& ctx, std::int64_t capacity) const {
  return std::max({ops::linear_workspace_bytes<T>(ctx, gates_.packed()),
                   ops::linear_workspace_bytes<T>(ctx, output_.packed()),
                   ops::linear_backward_workspace_bytes<T>(ctx, gates_.packed(), capacity),
                   ops::linear_backward_workspace_bytes<T>(ctx, output_.packed(), capacity),
                   ops::norm_workspace_bytes<T>(ctx, options_.width)});
}

#define TGR_INSTANTIATE(T)               \
  template struct FeedForwardSaved<T>;   \
  template struct FeedForwardScratch<T>; \
  template class FeedForward<T>;
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::model
