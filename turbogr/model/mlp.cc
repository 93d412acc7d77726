#include "turbogr/model/mlp.h"

#include <algorithm>
#include <cmath>

#include "turbogr/model/buffers.h"
#include "turbogr/ops/dense/swish_norm.h"

namespace turbogr::model {
namespace {

constexpr double kEps = 1e-5;

}  // namespace

template <class T>
Mlp<T>::Mlp(const Context& ctx, const MlpOptions& o, ParameterSet<T>& parameters)
    : options_(o),
      input_(parameters, matrix("input", o.inputs, o.hidden)),
      input_bias_(add_vector("input_bias", o.hidden, Init::kZero, parameters)),
      swish_({add_vector("swish_weight", o.hidden, Init::kOne, parameters),
              add_vector("swish_bias", o.hidden, Init::kZero, parameters)}),
      output_(parameters, matrix("output", o.hidden, o.outputs)),
      output_bias_(add_vector("output_bias", o.outputs, Init::kZero, parameters)) {
  if (o.norm) {
    norm_ = {add_vector("norm_weight", o.outputs, Init::kOne, parameters),
             add_vector("norm_bias", o.outputs, Init::kZero, parameters)};
  }
  const auto rows = [&](std::int64_t count, std::int64_t width) {
    return Tensor(dtype_of<T>(), {count, width}, ctx.device());
  };
  const auto statistics = [&](std::int64_t count) {
    return Tensor(dtype_of<Accum<T>>(), {count}, ctx.device());
  };
  const std::int64_t normed = o.norm ? o.capacity : 0;
  hidden_ = rows(o.capacity, o.hidden);
  activated_ = rows(o.capacity, o.hidden);
  linear_ = rows(normed, o.outputs);
  swish_mean_ = statistics(o.capacity);
  swish_rstd_ = statistics(o.capacity);
  norm_mean_ = statistics(normed);
  norm_rstd_ = statistics(normed);
  dhidden_ = rows(o.inference ? 0 : o.capacity, o.hidden);
  dlinear_ = rows(o.inference ? 0 : normed, o.outputs);
}

template <class T>
int Mlp<T>::add_vector(const char* part, std::int64_t size, Init init,
                       ParameterSet<T>& parameters) const {
  return parameters.add({.name = options_.name + "." + part, .shape = {size}, .init = init});
}

template <class T>
ParameterSpec Mlp<T>::matrix(const char* part, std::int64_t inputs, std::int64_t outputs) const {
  return {.name = options_.name + "." + part,
          .shape = {inputs, outputs},
          .init = options_.uniform_start ? Init::kUniform : Init::kNormal,
          .scale = options_.uniform_start ? xavier_bound(inputs, outputs)
                                          : xavier_deviation(inputs, outputs),
          .decay = true};
}

template <class T>
ops::NormOptions<T> Mlp<T>::norm_options(const ParameterSet<T>& parameters,
                                         const Affine& affine) const {
  return {.eps = kEps,
          .weight = parameters.value(affine.weight).template view<Accum<T>, 1>(),
          .bias = parameters.value(affine.bias).template view<Accum<T>, 1>()};
}

template <class T>
void Mlp<T>::refresh(const Context& ctx, const ParameterSet<T>& parameters) {
  input_.refresh(ctx, parameters);
  output_.refresh(ctx, parameters);
}

template <class T>
void Mlp<T>::forward(const Context& ctx, const ParameterSet<T>& parameters, Rows<const T> x,
                     Rows<T> y) {
  using A = Accum<T>;
  const std::int64_t n = x.rows;
  const Rows<T> hidden = first_rows<T>(hidden_, n);
  const Rows<T> activated = first_rows<T>(activated_, n);
  const Rows<T> linear = options_.norm ? first_rows<T>(linear_, n) : y;
  ops::linear<T>(ctx, x, input_.packed(),
                 {.bias = parameters.value(input_bias_).template view<A, 1>()}, hidden);
  ops::swish_norm<T>(ctx, hidden, norm_options(parameters, swish_), activated,
                     {first_values<A>(swish_mean_, n), first_values<A>(swish_rstd_, n)});
  ops::linear<T>(ctx, activated, output_.packed(),
                 {.bias = parameters.value(output_bias_).template view<A, 1>()}, linear);
  if (!options_.norm) return;
  ops::norm<T>(ctx, linear, norm_options(parameters, norm_), y,
               {first_values<A>(norm_mean_, n), first_values<A>(norm_rstd_, n)});
}

template <class T>
void Mlp<T>::backward(const Context& ctx, ParameterSet<T>& parameters, Rows<const T> x,
                      Rows<const T> dy, Rows<T> dx) {
  using A = Accum<T>;
  const std::int64_t n = x.rows;
  const auto gradient = [&](int index) { return parameters.gradient(index).template view<A, 1>(); };
  Rows<const T> dlinear = dy;
  if (options_.norm) {
    const Rows<T> made = first_rows<T>(dlinear_, n);
    ops::norm_backward<T>(
        ctx, first_rows<T>(linear_, n), dy, norm_options(parameters, norm_),
        {first_values<A>(norm_mean_, n), first_values<A>(norm_rstd_, n)},
        {.dx = made, .dweight = gradient(norm_.weight), .dbias = gradient(norm_.bias)});
    dlinear = made;
  }
  const Rows<T> dhidden = first_rows<T>(dhidden_, n);
  ops::linear_backward<T>(
      ctx, first_rows<T>(activated_, n), output_.packed(), dlinear, {},
      {.dx = dhidden, .dw = output_.gradient(parameters), .db = gradient(output_bias_)});
  ops::swish_norm_backward<T>(
      ctx, first_rows<T>(hidden_, n), dhidden, norm_options(parameters, swish_),
      {first_values<A>(swish_mean_, n), first_values<A>(swish_rstd_, n)},
      {.dx = dhidden, .dweight = gradient(swish_.weight), .dbias = gradient(swish_.bias)});
  ops::linear_backward<T>(
      ctx, x, input_.packed(), dhidden, {},
      {.dx = dx, .dw = input_.gradient(parameters), .db = gradient(input_bias_)});
}

template <class T>
std::size_t Mlp<T>::workspace_bytes(const Context& ctx) const {
  std::size_t most = std::max(ops::swish_norm_workspace_bytes<T>(ctx, options_.hidden),
                              ops::norm_workspace_bytes<T>(ctx, options_.outputs));
  for (const WeightMatrix<T>* weight : {&input_, &output_}) {
    most = std::max(
        {most, ops::linear_workspace_bytes<T>(ctx, weight->packed()),
         ops::linear_backward_workspace_bytes<T>(ctx, weight->packed(), options_.capacity)});
  }
  return most;
}

template <class T>
std::size_t Mlp<T>::bytes() const {
  std::size_t total = 0;
  for (const Tensor* tensor : {&hidden_, &activated_, &linear_, &swish_mean_, &swish_rstd_,
                               &norm_mean_, &norm_rstd_, &dhidden_, &dlinear_}) {
    total += tensor->bytes();
  }
  return total;
}

template class Mlp<double>;
template class Mlp<float>;
template class Mlp<bf16>;

}  // namespace turbogr::model
