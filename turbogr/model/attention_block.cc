#include "turbogr/model/attention_block.h"

#include <algorithm>
#include <utility>

#include "turbogr/model/buffers.h"
#include "turbogr/ops/attention/fuxi_attention.h"
#include "turbogr/ops/attention/time_bucket.h"
#include "turbogr/ops/dense/silu.h"
#include "turbogr/ops/rows/embedding.h"
#include "turbogr/ops/rows/event_targets.h"

namespace turbogr::model {
namespace {

// The four parts of a projection output, as slices.
template <class T>
struct Parts {
  Rows<T> u, v, q, k;
};

template <class T>
Parts<T> parts_of(const ModelOptions& o, Rows<T> projected) {
  const std::int64_t gate = o.gate_width();
  const std::int64_t value = o.value_width();
  const std::int64_t query = o.query_width();
  return {projected.columns(0, gate), projected.columns(gate, value),
          projected.columns(gate + value, query), projected.columns(gate + value + query, query)};
}

// V, Q and K from `activated`, which holds them alone.
template <class T>
Parts<T> with_activated(const ModelOptions& o, const Parts<T>& parts, Rows<T> activated) {
  const std::int64_t value = o.value_width();
  const std::int64_t query = o.query_width();
  return {parts.u, activated.columns(0, value), activated.columns(value, query),
          activated.columns(value + query, query)};
}

template <class Tensors>
std::size_t sum_of_bytes(const Tensors& tensors) {
  std::size_t total = 0;
  for (const Tensor* tensor : tensors) total += tensor->bytes();
  return total;
}

std::string layer_name(int layer, const char* part) {
  return "layers." + std::to_string(layer) + "." + part;
}

}  // namespace

template <class T>
AttentionSaved<T>::AttentionSaved(const ModelOptions& o, std::int64_t capacity, Device device,
                                  std::size_t kept_bytes)
    : normed(dtype_of<T>(), {capacity, o.width}, device),
      linear(dtype_of<T>(), {capacity, o.projection_width()}, device),
      activated(dtype_of<T>(),
                {capacity, o.silu_on_all ? o.projection_width() - o.gate_width() : 0}, device),
      attended(dtype_of<T>(), {capacity, o.gate_width()}, device),
      mixed(dtype_of<T>(), {capacity, o.mixed_width()}, device),
      input_mean(dtype_of<Accum<T>>(), {capacity}, device),
      input_rstd(dtype_of<Accum<T>>(), {capacity}, device),
      attended_mean(dtype_of<Accum<T>>(), {capacity}, device),
      attended_rstd(dtype_of<Accum<T>>(), {capacity}, device),
      kept(DType::kU8, {static_cast<std::int64_t>(kept_bytes)}, device) {}

template <class T>
std::size_t AttentionSaved<T>::bytes() const {
  return sum_of_bytes(std::initializer_list<const Tensor*>{&normed, &linear, &activated, &attended,
                                                           &mixed, &input_mean, &input_rstd,
                                                           &attended_mean, &attended_rstd, &kept});
}

template <class T>
TargetSaved<T>::TargetSaved(const ModelOptions& o, std::int64_t capacity, Device device)
    : input(dtype_of<T>(), {capacity, o.width}, device),
      gate(dtype_of<T>(), {capacity, o.gate_width()}, device),
      query(dtype_of<T>(), {capacity, o.query_width()}, device),
      attended(dtype_of<T>(), {capacity, o.gate_width()}, device),
      dgate(dtype_of<T>(), {capacity, o.gate_width()}, device),
      dquery(dtype_of<T>(), {capacity, o.query_width()}, device) {}

template <class T>
std::size_t TargetSaved<T>::bytes() const {
  return sum_of_bytes(
      std::initializer_list<const Tensor*>{&input, &gate, &query, &attended, &dgate, &dquery});
}

template <class T>
AttentionScratch<T>::AttentionScratch(const ModelOptions& o, std::int64_t capacity, Device device)
    : dmixed(dtype_of<T>(), {capacity, o.mixed_width()}, device),
      dattended(dtype_of<T>(), {capacity, o.gate_width()}, device),
      dprojected(dtype_of<T>(), {capacity, o.projection_width()}, device),
      dnormed(dtype_of<T>(), {capacity, o.width}, device) {}

template <class T>
std::size_t AttentionScratch<T>::bytes() const {
  return sum_of_bytes(
      std::initializer_list<const Tensor*>{&dmixed, &dattended, &dprojected, &dnormed});
}

template <class T>
AttentionBlock<T>::AttentionBlock(const ModelOptions& o, int layer, ParameterSet<T>& parameters)
    : options_(o),
      layer_(layer),
      projection_(
          parameters,
          {.name = layer_name(layer, "projection"),
           .shape = {o.width, o.projection_width()},
           .init = o.xavier_projection ? Init::kUniform : Init::kNormal,
           .scale = o.xavier_projection ? xavier_bound(o.width, o.projection_width()) : 0.02,
           .decay = true}),
      output_(parameters, {.name = layer_name(layer, "output"),
                           .shape = {o.mixed_width(), o.width},
                           .init = Init::kUniform,
                           .scale = xavier_bound(o.mixed_width(), o.width),
                           .decay = true}) {
  if (o.projection_bias) {
    projection_bias_ = parameters.add(
        {.name = layer_name(layer, "projection_bias"), .shape = {o.projection_width()}});
  }
  if (o.output_bias) {
    output_bias_ = parameters.add({.name = layer_name(layer, "output_bias"), .shape = {o.width}});
  }
  // FuXi's maps exist whatever the bias option: an unused one stays out of the model.
  if (o.position_bias()) {
    position_ = parameters.add({.name = layer_name(layer, "position"),
                                .shape = {2 * o.max_length - 1},
                                .init = Init::kNormal,
                                .scale = 0.02});
  }
  if (o.time_bias()) {
    time_ = parameters.add({.name = layer_name(layer, "time"),
                            .shape = {ops::kTimeBuckets},
                            .init = Init::kNormal,
                            .scale = 0.02});
  }
  if (o.affine_norms) {
    input_norm_ = add_affine("input_norm", o.width, parameters);
    attended_norm_ = add_affine("attended_norm", o.gate_width(), parameters);
  }
}

template <class T>
typename AttentionBlock<T>::Affine AttentionBlock<T>::add_affine(
    const std::string& name, std::int64_t width, ParameterSet<T>& parameters) const {
  Affine affine;
  const std::string prefix = layer_name(layer_, name.c_str());
  affine.weight =
      parameters.add({.name = prefix + "_weight", .shape = {width}, .init = Init::kOne});
  if (options_.kind == ModelKind::kHstu) {
    affine.bias = parameters.add({.name = prefix + "_bias", .shape = {width}});
  }
  return affine;
}

template <class T>
ops::NormOptions<T> AttentionBlock<T>::norm_options(const ParameterSet<T>& parameters,
                                                    const Affine& affine) const {
  ops::NormOptions<T> norm;
  norm.kind = options_.kind == ModelKind::kHstu ? ops::NormKind::kLayer : ops::NormKind::kRms;
  norm.weight = vector_value(parameters, affine.weight);
  norm.bias = vector_value(parameters, affine.bias);
  return norm;
}

template <class T>
ops::AttentionBias<T> AttentionBlock<T>::bias(const ParameterSet<T>& parameters,
                                              const StepInput& step) const {
  ops::AttentionBias<T> tables;
  tables.position = vector_value(parameters, position_);
  if (time_ >= 0) {
    tables.time = vector_value(parameters, time_);
    tables.key_times = step.key_times;
    tables.query_times = step.query_times;
  }
  return tables;
}

template <class T>
ops::AttentionMask AttentionBlock<T>::mask(const StepInput& step) const {
  return {
      .window = options_.window, .num_prefix = step.num_prefix, .num_targets = step.num_targets};
}

template <class T>
ops::HstuAttentionOptions AttentionBlock<T>::hstu_options(const StepInput& step,
                                                          AttentionSaved<T>& saved) const {
  return {.heads = options_.heads,
          .alpha = options_.alpha,
          .norm_length = norm_length(step),
          .mask = mask(step),
          .plan = step.plan,
          .kept = {saved.kept.data(), {saved.kept.size()}},
          .deterministic = step.deterministic};
}

template <class T>
ops::TargetAttentionOptions AttentionBlock<T>::target_options(const StepInput& step) const {
  return {.heads = options_.heads, .alpha = options_.alpha, .norm_length = norm_length(step)};
}

template <class T>
ops::GatedNormOptions<T> AttentionBlock<T>::mix_options(const ParameterSet<T>& parameters,
                                                        const ops::DropoutOptions& dropout) const {
  return {.norm = norm_options(parameters, attended_norm_),
          .concat = options_.concat,
          .silu_gate = true,
          .dropout = dropout,
          .concat_input = options_.concat_input};
}

template <class T>
void AttentionBlock<T>::refresh(const Context& ctx, const ParameterSet<T>& parameters) {
  projection_.refresh(ctx, parameters);
  output_.refresh(ctx, parameters);
}

template <class T>
void AttentionBlock<T>::list_rounded(std::vector<T*>& rounded) {
  rounded[static_cast<std::size_t>(projection_.index())] = projection_.rounded();
  rounded[static_cast<std::size_t>(output_.index())] = output_.rounded();
}

template <class T>
void AttentionBlock<T>::forward(const Context& ctx, const ParameterSet<T>& parameters,
                                const StepInput& step, Rows<const T> x, AttentionSaved<T>& saved,
                                Rows<T> y) const {
  using A = Accum<T>;
  const std::int64_t n = x.rows;
  const Rows<T> normed = first_rows<T>(saved.normed, n);
  const Rows<T> linear = first_rows<T>(saved.linear, n);
  const Rows<T> attended = first_rows<T>(saved.attended, n);
  const Rows<T> mixed = first_rows<T>(saved.mixed, n);

  ops::norm<T>(ctx, x, norm_options(parameters, input_norm_), normed,
               {first_values<A>(saved.input_mean, n), first_values<A>(saved.input_rstd, n)});

  // The gate's SiLU is made where it is used.
  ops::linear<T>(ctx, normed, projection_.packed(),
                 {.bias = vector_value(parameters, projection_bias_)}, linear);
  Parts<T> parts = parts_of(options_, linear);
  if (options_.silu_on_all) {
    const Rows<T> activated = first_rows<T>(saved.activated, n);
    ops::silu<T>(ctx, linear.columns(options_.gate_width(), activated.cols), activated);
    parts = with_activated(options_, parts, activated);
  }

  if (options_.kind == ModelKind::kHstu) {
    ops::hstu_attention<T>(ctx, {parts.q, step.offsets}, parts.k, parts.v, bias(parameters, step),
                           hstu_options(step, saved), attended);
  } else {
    ops::fuxi_attention<T>(ctx, {parts.q, step.offsets}, parts.k, parts.v, bias(parameters, step),
                           {.heads = options_.heads,
                            .alpha = options_.alpha,
                            .norm_length = norm_length(step),
                            .mask = mask(step),
                            .plan = step.plan,
                            .deterministic = step.deterministic},
                           attended);
  }

  ops::gated_norm<T>(
      ctx, attended, parts.u, mix_options(parameters, step.dropout(options_.dropout, layer_, 0)),
      mixed, {first_values<A>(saved.attended_mean, n), first_values<A>(saved.attended_rstd, n)});

  ops::linear<T>(ctx, mixed, output_.packed(),
                 {.bias = vector_value(parameters, output_bias_), .residual = x}, y);
}

template <class T>
void AttentionBlock<T>::backward(const Context& ctx, ParameterSet<T>& parameters,
                                 const StepInput& step, Rows<const T> x, AttentionSaved<T>& memory,
                                 Rows<const T> dy, AttentionScratch<T>& scratch, Rows<T> dx) const {
  using A = Accum<T>;
  const AttentionSaved<T>& saved = memory;
  const std::int64_t n = x.rows;
  const auto vector_gradient = [&](int index) {
    return index < 0 ? View<A, 1>{} : parameters.gradient(index).template view<A, 1>();
  };
  const Rows<const T> linear = first_rows<T>(saved.linear, n);
  const Rows<T> dmixed = first_rows<T>(scratch.dmixed, n);
  const Rows<T> dattended = first_rows<T>(scratch.dattended, n);
  const Rows<T> dprojected = first_rows<T>(scratch.dprojected, n);
  const Rows<T> dnormed = first_rows<T>(scratch.dnormed, n);

  // The output bias gets its gradient where dy is read once more, at the end.
  ops::linear_backward<T>(ctx, first_rows<T>(saved.mixed, n), output_.packed(), dy, {},
                          {.dx = dmixed, .dw = output_.gradient(parameters)});

  Parts<const T> parts = parts_of(options_, linear);
  if (options_.silu_on_all) {
    parts = with_activated(options_, parts, first_rows<T>(saved.activated, n));
  }
  const Parts<T> dparts = parts_of(options_, dprojected);
  ops::gated_norm_backward<T>(
      ctx, first_rows<T>(saved.attended, n), parts.u, dmixed,
      mix_options(parameters, step.dropout(options_.dropout, layer_, 0)),
      {first_values<A>(saved.attended_mean, n), first_values<A>(saved.attended_rstd, n)},
      {.dx = dattended,
       .dgate = dparts.u,
       .dweight = vector_gradient(attended_norm_.weight),
       .dbias = vector_gradient(attended_norm_.bias)});

  const ops::AttentionBiasGradient<T> dbias = {vector_gradient(position_), vector_gradient(time_)};
  if (options_.kind == ModelKind::kHstu) {
    // With SiLU's derivative, which the attention kernels bring in on the way.
    ops::BeforeSilu<T> before;
    const Parts<const T> projected = parts_of(options_, linear);
    if (options_.silu_on_all) before = {projected.q, projected.k, projected.v};
    ops::hstu_attention_backward<T>(ctx, {parts.q, step.offsets}, parts.k, parts.v,
                                    bias(parameters, step), hstu_options(step, memory), dattended,
                                    dparts.q, dparts.k, dparts.v, dbias, before);
  } else {
    ops::fuxi_attention_backward<T>(ctx, {parts.q, step.offsets}, parts.k, parts.v,
                                    bias(parameters, step),
                                    {.heads = options_.heads,
                                     .alpha = options_.alpha,
                                     .norm_length = norm_length(step),
                                     .mask = mask(step),
                                     .plan = step.plan,
                                     .deterministic = step.deterministic},
                                    dattended, dparts.q, dparts.k, dparts.v, dbias);
  }

  if (options_.silu_on_all && options_.kind != ModelKind::kHstu) {
    const std::int64_t gate = options_.gate_width();
    const std::int64_t rest = options_.projection_width() - gate;
    ops::silu_backward<T>(ctx, linear.columns(gate, rest), dprojected.columns(gate, rest),
                          dprojected.columns(gate, rest));
  }
  ops::linear_backward<T>(ctx, first_rows<T>(saved.normed, n), projection_.packed(), dprojected, {},
                          {.dx = dnormed,
                           .dw = projection_.gradient(parameters),
                           .db = vector_gradient(projection_bias_)});

  ops::norm_backward<T>(
      ctx, x, dnormed, norm_options(parameters, input_norm_),
      {first_values<A>(saved.input_mean, n), first_values<A>(saved.input_rstd, n)},
      {.dx = dx,
       .dweight = vector_gradient(input_norm_.weight),
       .dbias = vector_gradient(input_norm_.bias),
       .residual = dy,
       .residual_sums = vector_gradient(output_bias_)});
}

template <class T>
void AttentionBlock<T>::forward_targets(const Context& ctx, const ParameterSet<T>& parameters,
                                        const StepInput& step, Rows<const T> x,
                                        AttentionSaved<T>& saved, TargetSaved<T>& targets,
                                        Rows<T> y) const {
  using A = Accum<T>;
  const std::int64_t n = x.rows;
  const std::int64_t m = step.targets.shape[0];
  const Rows<T> normed = first_rows<T>(saved.normed, n);
  const Rows<T> linear = first_rows<T>(saved.linear, n);
  const Rows<T> mixed = first_rows<T>(saved.mixed, m);
  ops::norm<T>(ctx, x, norm_options(parameters, input_norm_), normed,
               {first_values<A>(saved.input_mean, n), first_values<A>(saved.input_rstd, n)});
  ops::linear<T>(ctx, normed, projection_.packed(),
                 {.bias = vector_value(parameters, projection_bias_)}, linear);
  const Parts<const T> parts = parts_of<const T>(options_, linear);
  const auto pick = [&](Rows<const T> from, Tensor& to) {
    const Rows<T> picked = first_rows<T>(to, m);
    ops::gather_rows<T, T, std::int64_t>(ctx, from, step.targets, picked);
    return picked;
  };
  const Rows<T> gate = pick(parts.u, targets.gate);
  const Rows<T> attended = first_rows<T>(targets.attended, m);
  if (step.few_targets) {
    const Rows<T> query = pick(parts.q, targets.query);
    ops::target_attention<T>(ctx, {step.offsets, step.target_starts}, query, parts.k, parts.v,
                             target_options(step), attended);
  } else {
    const Rows<T> all = first_rows<T>(saved.attended, n);
    ops::hstu_attention<T>(ctx, {parts.q, step.offsets}, parts.k, parts.v, bias(parameters, step),
                           hstu_options(step, saved), all);
    pick(all, targets.attended);
  }
  StepInput of_targets = step;
  of_targets.row_keys = step.target_keys;
  ops::gated_norm<T>(
      ctx, attended, gate, mix_options(parameters, of_targets.dropout(options_.dropout, layer_, 0)),
      mixed, {first_values<A>(saved.attended_mean, m), first_values<A>(saved.attended_rstd, m)});
  ops::linear<T>(
      ctx, mixed, output_.packed(),
      {.bias = vector_value(parameters, output_bias_), .residual = pick(x, targets.input)}, y);
}

template <class T>
void AttentionBlock<T>::backward_targets(const Context& ctx, ParameterSet<T>& parameters,
                                         const StepInput& step, Rows<const T> x,
                                         AttentionSaved<T>& saved, TargetSaved<T>& targets,
                                         Rows<const T> dy, AttentionScratch<T>& scratch,
                                         Rows<T> dx) const {
  using A = Accum<T>;
  const std::int64_t n = x.rows;
  const std::int64_t m = step.targets.shape[0];
  const auto vector_gradient = [&](int index) {
    return index < 0 ? View<A, 1>{} : parameters.gradient(index).template view<A, 1>();
  };
  const Rows<T> dmixed = first_rows<T>(scratch.dmixed, m);
  const Rows<T> dattended = first_rows<T>(scratch.dattended, m);
  const Rows<T> dprojected = first_rows<T>(scratch.dprojected, n);
  const Rows<T> dnormed = first_rows<T>(scratch.dnormed, n);
  const Rows<T> dgate = first_rows<T>(targets.dgate, m);
  const Parts<const T> parts =
      parts_of<const T>(options_, first_rows<T>(std::as_const(saved.linear), n));
  const Parts<T> dparts = parts_of(options_, dprojected);

  ops::linear_backward<T>(
      ctx, first_rows<T>(std::as_const(saved.mixed), m), output_.packed(), dy, {},
      {.dx = dmixed, .dw = output_.gradient(parameters), .db = vector_gradient(output_bias_)});
  StepInput of_targets = step;
  of_targets.row_keys = step.target_keys;
  ops::gated_norm_backward<T>(
      ctx, first_rows<T>(std::as_const(targets.attended), m),
      first_rows<T>(std::as_const(targets.gate), m), dmixed,
      mix_options(parameters, of_targets.dropout(options_.dropout, layer_, 0)),
      {first_values<A>(saved.attended_mean, m), first_values<A>(saved.attended_rstd, m)},
      {.dx = dattended,
       .dgate = dgate,
       .dweight = vector_gradient(attended_norm_.weight),
       .dbias = vector_gradient(attended_norm_.bias)});
  ops::spread_rows<T>(ctx, dgate, step.targets, dparts.u);
  if (step.few_targets) {
    const Rows<T> dquery = first_rows<T>(targets.dquery, m);
    ops::target_attention_backward<T>(
        ctx, {step.offsets, step.target_starts}, first_rows<T>(std::as_const(targets.query), m),
        parts.k, parts.v, target_options(step), dattended, dquery, dparts.k, dparts.v);
    ops::spread_rows<T>(ctx, dquery, step.targets, dparts.q);
  } else {
    const Rows<T> all = first_rows<T>(saved.attended, n);  // forward's are not wanted again
    ops::spread_rows<T>(ctx, dattended, step.targets, all);
    ops::hstu_attention_backward<T>(ctx, {parts.q, step.offsets}, parts.k, parts.v,
                                    bias(parameters, step), hstu_options(step, saved), all,
                                    dparts.q, dparts.k, dparts.v,
                                    {vector_gradient(position_), vector_gradient(time_)});
  }
  ops::linear_backward<T>(ctx, first_rows<T>(std::as_const(saved.normed), n), projection_.packed(),
                          dprojected, {},
                          {.dx = dnormed,
                           .dw = projection_.gradient(parameters),
                           .db = vector_gradient(projection_bias_)});
  ops::norm_backward<T>(
      ctx, x, dnormed, norm_options(parameters, input_norm_),
      {first_values<A>(saved.input_mean, n), first_values<A>(saved.input_rstd, n)},
      {.dx = dx,
       .dweight = vector_gradient(input_norm_.weight),
       .dbias = vector_gradient(input_norm_.bias)});
  ops::add_rows_at<T>(ctx, dy, step.targets, dx);
}

template <class T>
std::size_t AttentionBlock<T>::workspace_bytes(const Context& ctx,
                                               const ops::AttentionShape& shape) const {
  const std::size_t attention =
      options_.kind == ModelKind::kHstu
          ? std::max(ops::hstu_attention_workspace_bytes<T>(shape),
                     ops::hstu_attention_backward_workspace_bytes<T>(shape))
          : std::max(ops::fuxi_attention_workspace_bytes<T>(shape),
                     ops::fuxi_attention_backward_workspace_bytes<T>(shape));
  return std::max({attention, ops::linear_workspace_bytes<T>(ctx, projection_.packed()),
                   ops::linear_workspace_bytes<T>(ctx, output_.packed()),
                   ops::linear_backward_workspace_bytes<T>(ctx, projection_.packed(), shape.tokens),
                   ops::linear_backward_workspace_bytes<T>(ctx, output_.packed(), shape.tokens),
                   ops::norm_workspace_bytes<T>(ctx, options_.width),
                   ops::gated_norm_workspace_bytes<T>(ctx, options_.gate_width())});
}

#define TGR_INSTANTIATE(T)             \
  template struct AttentionSaved<T>;   \
  template struct TargetSaved<T>;      \
  template struct AttentionScratch<T>; \
  template class AttentionBlock<T>;
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::model
