#include "turbogr/model/post_processor.h"

#include <algorithm>

#include "turbogr/model/buffers.h"
#include "turbogr/ops/dense/l2_normalize.h"
#include "turbogr/ops/rows/clock_features.h"

namespace turbogr::model {
namespace {

constexpr double kNormEps = 1e-5;

template <class T>
std::optional<WeightMatrix<T>> add_weight(const PostOptions& options, ParameterSet<T>& parameters) {
  if (options.kind != PostKind::kTime) return std::nullopt;
  const std::int64_t inputs = options.width + ops::kClockFeatures;
  return WeightMatrix<T>(parameters, {.name = "post",
                                      .shape = {inputs, options.width},
                                      .init = Init::kNormal,
                                      .scale = xavier_deviation(inputs, options.width),
                                      .decay = true});
}

}  // namespace

template <class T>
PostProcessor<T>::PostProcessor(const Context& ctx, const PostOptions& options,
                                ParameterSet<T>& parameters)
    : options_(options), weight_(add_weight<T>(options, parameters)) {
  const std::int64_t width = options.width, targets = options.targets;
  const auto add_vector = [&](const char* name, Init init) {
    return parameters.add(
        {.name = name, .shape = {width}, .init = init, .scale = init == Init::kOne ? 1.0 : 0.0});
  };
  if (weight_) bias_ = add_vector("post_bias", Init::kZero);
  if (norms()) {
    norm_weight_ = add_vector("post_norm_weight", Init::kOne);
    norm_bias_ = add_vector("post_norm_bias", Init::kZero);
  }
  const auto rows = [&](std::int64_t columns) {
    return Tensor(dtype_of<T>(), {targets, columns}, ctx.device());
  };
  const std::int64_t inputs = width + (weight_ ? ops::kClockFeatures : 0);
  input_ = rows(inputs);
  result_ = rows(width);
  if (weight_) linear_ = rows(width);
  if (!options.inference) dinput_ = rows(inputs);
  if (norms()) mean_ = Tensor(dtype_of<Accum<T>>(), {targets}, ctx.device());
  scale_ = Tensor(dtype_of<Accum<T>>(), {targets}, ctx.device());
}

template <class T>
void PostProcessor<T>::refresh(const Context& ctx, const ParameterSet<T>& parameters) {
  if (weight_) weight_->refresh(ctx, parameters);
}

template <class T>
ops::NormOptions<T> PostProcessor<T>::norm_options(const ParameterSet<T>& parameters) const {
  return {.eps = kNormEps,
          .weight = parameters.value(norm_weight_).template view<Accum<T>, 1>(),
          .bias = parameters.value(norm_bias_).template view<Accum<T>, 1>()};
}

template <class T>
Rows<T> PostProcessor<T>::input(std::int64_t targets) {
  return first_rows<T>(input_, targets).columns(0, options_.width);
}

template <class T>
Rows<const T> PostProcessor<T>::input(std::int64_t targets) const {
  return first_rows<T>(input_, targets).columns(0, options_.width);
}

template <class T>
Rows<const T> PostProcessor<T>::result(std::int64_t targets) const {
  return first_rows<T>(result_, targets);
}

template <class T>
Rows<const T> PostProcessor<T>::forward(const Context& ctx, const ParameterSet<T>& parameters,
                                        View<const std::int64_t, 1> times) {
  using A = Accum<T>;
  const std::int64_t m = times.shape[0];
  const Rows<T> result = first_rows<T>(result_, m);
  if (!norms()) {
    ops::l2_normalize<T>(ctx, input(m), {}, result, first_values<A>(scale_, m));
    return result;
  }
  Rows<const T> normed = input(m);
  if (weight_) {
    const Rows<T> all = first_rows<T>(input_, m), linear = first_rows<T>(linear_, m);
    ops::clock_features<T>(ctx, times, all.columns(options_.width, ops::kClockFeatures));
    ops::linear<T>(ctx, all, weight_->packed(),
                   {.bias = parameters.value(bias_).template view<A, 1>()}, linear);
    normed = linear;
  }
  ops::norm<T>(ctx, normed, norm_options(parameters), result,
               {first_values<A>(mean_, m), first_values<A>(scale_, m)});
  return result;
}

template <class T>
Rows<const T> PostProcessor<T>::backward(const Context& ctx, ParameterSet<T>& parameters,
                                         Rows<T> dresult) {
  using A = Accum<T>;
  const std::int64_t m = dresult.rows;
  const auto gradient = [&](int index) { return parameters.gradient(index).template view<A, 1>(); };
  const Rows<T> dinput = first_rows<T>(dinput_, m);
  if (!norms()) {
    ops::l2_normalize_backward<T>(ctx, input(m), dresult, first_values<A>(scale_, m), {}, dinput);
    return dinput;
  }
  const Rows<const T> normed = weight_ ? first_rows<T>(linear_, m) : input(m);
  const Rows<T> dnormed = weight_ ? dresult : dinput;
  ops::norm_backward<T>(
      ctx, normed, dresult, norm_options(parameters),
      {first_values<A>(mean_, m), first_values<A>(scale_, m)},
      {.dx = dnormed, .dweight = gradient(norm_weight_), .dbias = gradient(norm_bias_)});
  if (weight_) {
    ops::linear_backward<T>(
        ctx, first_rows<T>(input_, m), weight_->packed(), dnormed, {},
        {.dx = dinput, .dw = weight_->gradient(parameters), .db = gradient(bias_)});
  }
  return dinput.columns(0, options_.width);
}

template <class T>
std::size_t PostProcessor<T>::bytes() const {
  std::size_t total = 0;
  for (const Tensor* tensor : {&input_, &dinput_, &linear_, &result_, &mean_, &scale_}) {
    total += tensor->bytes();
  }
  return total;
}

template <class T>
std::size_t PostProcessor<T>::workspace_bytes(const Context& ctx) const {
  std::size_t most = norms() ? ops::norm_workspace_bytes<T>(ctx, options_.width) : 0;
  if (weight_) {
    most = std::max(
        {most, ops::linear_workspace_bytes<T>(ctx, weight_->packed()),
         ops::linear_backward_workspace_bytes<T>(ctx, weight_->packed(), options_.targets)});
  }
  return most;
}

template class PostProcessor<double>;
template class PostProcessor<float>;
template class PostProcessor<bf16>;

}  // namespace turbogr::model
