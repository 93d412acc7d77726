#include "turbogr/model/attention_block.h"

#include <algorithm>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/model/buffers.h"
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
      attended_mean(dtype_of<Accum<T>>(), {capacity * o.norm_groups()}, device),
      attended_rstd(dtype_of<Accum<T>>(), {capacity * o.norm_groups()}, device),
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
      normed(dtype_of<T>(), {capacity, o.width}, device),
      projected(dtype_of<T>(), {capacity, o.gate_width() + o.query_width()}, device),
      attended(dtype_of<T>(), {capacity, o.gate_width()}, device),
      dprojected(dtype_of<T>(), projected.shape(), device),
      dnormed(dtype_of<T>(), {capacity, o.width}, device) {}

template <class T>
std::size_t TargetSaved<T>::bytes() const {
  return sum_of_bytes(std::initializer_list<const Tensor*>{&input, &normed, &projected, &attended,
                                                           &dprojected, &dnormed});
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
                                .shape = {2 * o.position_length() - 1},
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
  return {.window = options_.window,
          .num_prefix = step.num_prefix,
          .num_targets = step.num_targets,
          .targets_together = step.targets_together};
}

template <class T>
ops::HstuAttentionOptions AttentionBlock<T>::hstu_options(const StepInput& step,
                                                          AttentionSaved<T>& saved) const {
  return {.heads = options_.heads,
          .alpha = options_.alpha,
          .norm_length = norm_length(step),
          .mask = mask(step),
          .plan = step.plan,
          .kept = step.kept.empty() ? View<std::byte, 1>{saved.kept.data(), {saved.kept.size()}}
                                    : step.kept,
          .kept_ready = step.kept_ready,
          .deterministic = step.deterministic};
}

template <class T>
ops::FuxiAttentionOptions AttentionBlock<T>::fuxi_options(const StepInput& step) const {
  return {.heads = options_.heads,
          .alpha = options_.alpha,
          .norm_length = norm_length(step),
          .mask = mask(step),
          .plan = step.plan,
          .deterministic = step.deterministic};
}

template <class T>
ops::TargetAttentionOptions AttentionBlock<T>::target_options(const StepInput& step) const {
  return {.heads = options_.heads, .alpha = options_.alpha, .norm_length = norm_length(step)};
}

template <class T>
template <class V>
View<V, 1> AttentionBlock<T>::of_group(View<V, 1> vector, int group) const {
  if (vector.data == nullptr) return {};
  const std::int64_t width = vector.shape[0] / options_.norm_groups();
  return {vector.data + group * width, {width}};
}

template <class T>
template <class V>
Rows<V> AttentionBlock<T>::of_group(Rows<V> rows, int group) const {
  const std::int64_t width = rows.cols / options_.norm_groups();
  return rows.columns(group * width, width);
}

template <class T>
ops::GatedNormOptions<T> AttentionBlock<T>::mix_options(const ParameterSet<T>& parameters,
                                                        const ops::DropoutOptions& dropout,
                                                        int group) const {
  ops::GatedNormOptions<T> options = {.norm = norm_options(parameters, attended_norm_),
                                      .concat = options_.concat,
                                      .silu_gate = true,
                                      .dropout = dropout,
                                      .concat_input = options_.concat_input};
  options.norm.weight = of_group(options.norm.weight, group);
  options.norm.bias = of_group(options.norm.bias, group);
  // Each group draws for columns from 0 on, so it has a seed of its own.
  options.dropout.seed += static_cast<std::uint64_t>(group) * 0x9e3779b97f4a7c15u;
  return options;
}

template <class T>
ops::NormStatistics<Accum<T>> AttentionBlock<T>::mix_statistics(AttentionSaved<T>& saved,
                                                                std::int64_t rows,
                                                                int group) const {
  using A = Accum<T>;
  return {{saved.attended_mean.template view<A, 1>().data + group * rows, {rows}},
          {saved.attended_rstd.template view<A, 1>().data + group * rows, {rows}}};
}

template <class T>
void AttentionBlock<T>::mix(const Context& ctx, const ParameterSet<T>& parameters,
                            const StepInput& step, Rows<const T> attended, Rows<const T> gate,
                            AttentionSaved<T>& saved, Rows<T> mixed,
                            const ops::Fp8Rows<T>& mixed8) const {
  for (int group = 0; group < options_.norm_groups(); ++group) {
    ops::gated_norm<T>(ctx, of_group(attended, group), of_group(gate, group),
                       mix_options(parameters, step.dropout(options_.dropout, layer_, 0), group),
                       of_group(mixed, group), mix_statistics(saved, attended.rows, group), mixed8);
  }
}

template <class T>
void AttentionBlock<T>::mix_backward(const Context& ctx, ParameterSet<T>& parameters,
                                     const StepInput& step, Rows<const T> attended,
                                     Rows<const T> gate, Rows<const T> dmixed,
                                     AttentionSaved<T>& saved, Rows<T> dattended,
                                     Rows<T> dgate) const {
  for (int group = 0; group < options_.norm_groups(); ++group) {
    const ops::NormStatistics<Accum<T>> saved_of = mix_statistics(saved, attended.rows, group);
    ops::gated_norm_backward<T>(
        ctx, of_group(attended, group), of_group(gate, group), of_group(dmixed, group),
        mix_options(parameters, step.dropout(options_.dropout, layer_, 0), group),
        {saved_of.mean, saved_of.rstd},
        {.dx = of_group(dattended, group),
         .dgate = of_group(dgate, group),
         .dweight = of_group(vector_gradient(parameters, attended_norm_.weight), group),
         .dbias = of_group(vector_gradient(parameters, attended_norm_.bias), group)});
  }
}

template <class T>
void AttentionBlock<T>::use_fp8(const Context& ctx, const ParameterSet<T>& parameters,
                                std::int64_t capacity, Fp8Shared<T>& shared) {
  TGR_CHECK(!options_.norm_heads,
            "fp8 products take rows that one norm has made; leave norm_heads out");
  projection_.use_fp8(ctx, parameters, capacity, shared);
  output_.use_fp8(ctx, parameters, capacity, shared);
}

template <class T>
void AttentionBlock<T>::refresh(const Context& ctx, const ParameterSet<T>& parameters) {
  projection_.refresh(ctx, parameters);
  output_.refresh(ctx, parameters);
  if (!split_) return;
  const View<const Accum<T>, 2> weight =
      parameters.value(projection_.index()).template view<Accum<T>, 2>();
  split_->all.refresh(ctx, weight, vector_value(parameters, projection_bias_));
  split_->own.refresh(ctx, weight, vector_value(parameters, projection_bias_));
}

template <class T>
void AttentionBlock<T>::list_rounded(std::vector<T*>& rounded) {
  rounded[static_cast<std::size_t>(projection_.index())] = projection_.rounded();
  rounded[static_cast<std::size_t>(output_.index())] = output_.rounded();
}

template <class T>
void AttentionBlock<T>::attend(const Context& ctx, const ParameterSet<T>& parameters,
                               const StepInput& step, AttentionSaved<T>& saved) const {
  const std::int64_t n = step.num_tokens;
  const Rows<T> linear = first_rows<T>(saved.linear, n);
  const Rows<T> attended = first_rows<T>(saved.attended, n);
  // The gate's SiLU is made where it is used.
  projection_.multiply(ctx, step, first_rows<T>(std::as_const(saved.normed), n),
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
                           fuxi_options(step), attended);
  }
}

template <class T>
void AttentionBlock<T>::attend_backward(const Context& ctx, ParameterSet<T>& parameters,
                                        const StepInput& step, AttentionSaved<T>& saved,
                                        Rows<const T> dattended,
                                        AttentionScratch<T>& scratch) const {
  const std::int64_t n = step.num_tokens;
  const Rows<const T> linear = first_rows<T>(std::as_const(saved.linear), n);
  const Rows<T> dprojected = first_rows<T>(scratch.dprojected, n);
  const Parts<const T> projected = parts_of(options_, linear);
  const Parts<T> dparts = parts_of(options_, dprojected);
  Parts<const T> parts = projected;
  if (options_.silu_on_all) {
    parts = with_activated(options_, parts, first_rows<T>(std::as_const(saved.activated), n));
  }
  const ops::AttentionBiasGradient<T> dbias = {vector_gradient(parameters, position_),
                                               vector_gradient(parameters, time_)};
  if (options_.kind == ModelKind::kHstu) {
    // With SiLU's derivative, which the attention kernels bring in on the way.
    ops::BeforeSilu<T> before;
    if (options_.silu_on_all) before = {projected.q, projected.k, projected.v};
    ops::hstu_attention_backward<T>(ctx, {parts.q, step.offsets}, parts.k, parts.v,
                                    bias(parameters, step), hstu_options(step, saved), dattended,
                                    dparts.q, dparts.k, dparts.v, dbias, before);
  } else {
    ops::fuxi_attention_backward<T>(ctx, {parts.q, step.offsets}, parts.k, parts.v,
                                    bias(parameters, step), fuxi_options(step), dattended, dparts.q,
                                    dparts.k, dparts.v, dbias);
    if (options_.silu_on_all) {
      const std::int64_t gate = options_.gate_width();
      const std::int64_t rest = options_.projection_width() - gate;
      ops::silu_backward<T>(ctx, linear.columns(gate, rest), dprojected.columns(gate, rest),
                            dprojected.columns(gate, rest));
    }
  }
  projection_.multiply_backward(ctx, step, first_rows<T>(std::as_const(saved.normed), n),
                                dprojected,
                                {.dx = first_rows<T>(scratch.dnormed, n),
                                 .dw = projection_.gradient(parameters),
                                 .db = vector_gradient(parameters, projection_bias_)});
}

template <class T>
void AttentionBlock<T>::forward(const Context& ctx, const ParameterSet<T>& parameters,
                                const StepInput& step, Rows<const T> x, AttentionSaved<T>& saved,
                                Rows<T> y) const {
  using A = Accum<T>;
  const std::int64_t n = x.rows;
  const Rows<T> mixed = first_rows<T>(saved.mixed, n);

  ops::norm<T>(ctx, x, norm_options(parameters, input_norm_), first_rows<T>(saved.normed, n),
               {first_values<A>(saved.input_mean, n), first_values<A>(saved.input_rstd, n)},
               projection_.fp8_input(step, n));
  attend(ctx, parameters, step, saved);
  const Parts<const T> parts = parts_of(options_, first_rows<T>(std::as_const(saved.linear), n));
  mix(ctx, parameters, step, first_rows<T>(std::as_const(saved.attended), n), parts.u, saved, mixed,
      output_.fp8_input(step, n));

  output_.multiply(ctx, step, mixed,
                   {.bias = vector_value(parameters, output_bias_), .residual = x}, y);
}

template <class T>
void AttentionBlock<T>::backward(const Context& ctx, ParameterSet<T>& parameters,
                                 const StepInput& step, Rows<const T> x, AttentionSaved<T>& saved,
                                 Rows<const T> dy, AttentionScratch<T>& scratch, Rows<T> dx) const {
  using A = Accum<T>;
  const std::int64_t n = x.rows;
  const Rows<T> dmixed = first_rows<T>(scratch.dmixed, n);
  const Rows<T> dattended = first_rows<T>(scratch.dattended, n);

  // The output bias gets its gradient where dy is read once more, at the end.
  output_.multiply_backward(ctx, step, first_rows<T>(std::as_const(saved.mixed), n), dy,
                            {.dx = dmixed, .dw = output_.gradient(parameters)});

  const Parts<const T> parts = parts_of(options_, first_rows<T>(std::as_const(saved.linear), n));
  const Parts<T> dparts = parts_of(options_, first_rows<T>(scratch.dprojected, n));
  mix_backward(ctx, parameters, step, first_rows<T>(std::as_const(saved.attended), n), parts.u,
               dmixed, saved, dattended, dparts.u);
  attend_backward(ctx, parameters, step, saved, dattended, scratch);
  ops::norm_backward<T>(
      ctx, x, first_rows<T>(std::as_const(scratch.dnormed), n),
      norm_options(parameters, input_norm_),
      {first_values<A>(saved.input_mean, n), first_values<A>(saved.input_rstd, n)},
      {.dx = dx,
       .dweight = vector_gradient(parameters, input_norm_.weight),
       .dbias = vector_gradient(parameters, input_norm_.bias),
       .residual = dy,
       .residual_sums = vector_gradient(parameters, output_bias_)});
}

template <class T>
void AttentionBlock<T>::split_projection() {
  const std::int64_t gate = options_.gate_width(), value = options_.value_width(),
                     query = options_.query_width();
  using Part = ColumnPart<T>;
  split_ = std::make_unique<Split>(Split{Part({{gate, value}, {gate + value + query, query}}),
                                         Part({{0, gate}, {gate + value, query}})});
}

namespace {

// Keys and values of all tokens, in memory that is made for a whole projection.
template <class T>
struct KeysAndValues {
  Rows<T> both, v, k;

  KeysAndValues(const ModelOptions& o, Rows<T> whole)
      : both(whole.data, whole.rows, o.value_width() + o.query_width(),
             o.value_width() + o.query_width()),
        v(both.columns(0, o.value_width())),
        k(both.columns(o.value_width(), o.query_width())) {}
};

// What targets have of their own.
template <class T>
struct GateAndQuery {
  Rows<T> both, u, q;

  GateAndQuery(const ModelOptions& o, Rows<T> rows)
      : both(rows),
        u(rows.columns(0, o.gate_width())),
        q(rows.columns(o.gate_width(), o.query_width())) {}
};

}  // namespace

template <class T>
void AttentionBlock<T>::attend_targets(const Context& ctx, const StepInput& step,
                                       AttentionSaved<T>& saved, TargetSaved<T>& targets) const {
  const std::int64_t n = step.num_tokens, m = step.targets.shape[0];
  const Rows<const T> normed = first_rows<T>(std::as_const(saved.normed), n);
  const Rows<T> own_normed = first_rows<T>(targets.normed, m);
  const KeysAndValues<T> all(options_, first_rows<T>(saved.linear, n));
  const GateAndQuery<T> own(options_, first_rows<T>(targets.projected, m));
  ops::linear<T>(ctx, normed, split_->all.packed(), {.bias = split_->all.bias()}, all.both);
  ops::gather_rows<T, T, std::int64_t>(ctx, normed, step.targets, own_normed);
  ops::linear<T>(ctx, own_normed, split_->own.packed(), {.bias = split_->own.bias()}, own.both);
  ops::target_attention<T>(ctx, {step.offsets, step.target_starts}, own.q, all.k, all.v,
                           target_options(step), first_rows<T>(targets.attended, m));
}

template <class T>
void AttentionBlock<T>::attend_all(const Context& ctx, const ParameterSet<T>& parameters,
                                   const StepInput& step, AttentionSaved<T>& saved,
                                   TargetSaved<T>& targets) const {
  const std::int64_t n = step.num_tokens, m = step.targets.shape[0];
  attend(ctx, parameters, step, saved);
  const Parts<const T> parts = parts_of(options_, first_rows<T>(std::as_const(saved.linear), n));
  const GateAndQuery<T> own(options_, first_rows<T>(targets.projected, m));
  ops::gather_rows<T, T, std::int64_t>(ctx, parts.u, step.targets, own.u);
  ops::gather_rows<T, T, std::int64_t>(ctx, first_rows<T>(std::as_const(saved.attended), n),
                                       step.targets, first_rows<T>(targets.attended, m));
}

template <class T>
void AttentionBlock<T>::forward_targets(const Context& ctx, const ParameterSet<T>& parameters,
                                        const StepInput& step, Rows<const T> x,
                                        AttentionSaved<T>& saved, TargetSaved<T>& targets,
                                        Rows<T> y) const {
  using A = Accum<T>;
  const std::int64_t n = x.rows, m = step.targets.shape[0];
  ops::norm<T>(ctx, x, norm_options(parameters, input_norm_), first_rows<T>(saved.normed, n),
               {first_values<A>(saved.input_mean, n), first_values<A>(saved.input_rstd, n)});
  if (step.few_targets) {
    attend_targets(ctx, step, saved, targets);
  } else {
    attend_all(ctx, parameters, step, saved, targets);
  }
  const GateAndQuery<T> own(options_, first_rows<T>(targets.projected, m));
  const Rows<T> mixed = first_rows<T>(saved.mixed, m);
  const Rows<T> input = first_rows<T>(targets.input, m);
  mix(ctx, parameters, step.with_target_rows(), first_rows<T>(std::as_const(targets.attended), m),
      own.u, saved, mixed);
  ops::gather_rows<T, T, std::int64_t>(ctx, x, step.targets, input);
  ops::linear<T>(ctx, mixed, output_.packed(),
                 {.bias = vector_value(parameters, output_bias_), .residual = input}, y);
}

// From the gradients of targets' gates (targets.dprojected) and of what they attended to
// (scratch.dattended) to those of norm(x) (scratch.dnormed).
template <class T>
void AttentionBlock<T>::attend_targets_backward(const Context& ctx, ParameterSet<T>& parameters,
                                                const StepInput& step, AttentionSaved<T>& saved,
                                                TargetSaved<T>& targets,
                                                AttentionScratch<T>& scratch) const {
  const std::int64_t n = step.num_tokens, m = step.targets.shape[0];
  const KeysAndValues<const T> all(options_, first_rows<T>(std::as_const(saved.linear), n));
  const KeysAndValues<T> dall(options_, first_rows<T>(scratch.dprojected, n));
  const GateAndQuery<const T> own(options_, first_rows<T>(std::as_const(targets.projected), m));
  const GateAndQuery<T> down(options_, first_rows<T>(targets.dprojected, m));
  const Rows<T> dnormed = first_rows<T>(scratch.dnormed, n);
  const Rows<T> own_dnormed = first_rows<T>(targets.dnormed, m);
  ops::target_attention_backward<T>(ctx, {step.offsets, step.target_starts}, own.q, all.k, all.v,
                                    target_options(step), first_rows<T>(scratch.dattended, m),
                                    down.q, dall.k, dall.v);
  const auto back = [&](ColumnPart<T>& part, Rows<const T> normed, Rows<const T> dy, Rows<T> dx) {
    part.clear_gradients(ctx);
    ops::linear_backward<T>(ctx, normed, part.packed(), dy, {},
                            {.dx = dx, .dw = part.dweight(), .db = part.dbias()});
    part.add_gradients(ctx, projection_.gradient(parameters),
                       vector_gradient(parameters, projection_bias_));
  };
  back(split_->all, first_rows<T>(std::as_const(saved.normed), n), dall.both, dnormed);
  back(split_->own, first_rows<T>(std::as_const(targets.normed), m), down.both, own_dnormed);
  ops::add_rows_at<T>(ctx, own_dnormed, step.targets, dnormed);
}

template <class T>
void AttentionBlock<T>::attend_all_backward(const Context& ctx, ParameterSet<T>& parameters,
                                            const StepInput& step, AttentionSaved<T>& saved,
                                            TargetSaved<T>& targets,
                                            AttentionScratch<T>& scratch) const {
  const std::int64_t n = step.num_tokens, m = step.targets.shape[0];
  const Parts<T> dparts = parts_of(options_, first_rows<T>(scratch.dprojected, n));
  const GateAndQuery<T> down(options_, first_rows<T>(targets.dprojected, m));
  const Rows<T> dattended = first_rows<T>(saved.attended, n);  // forward's are not wanted again
  ops::spread_rows<T>(ctx, down.u, step.targets, dparts.u);
  ops::spread_rows<T>(ctx, first_rows<T>(scratch.dattended, m), step.targets, dattended);
  attend_backward(ctx, parameters, step, saved, dattended, scratch);
}

template <class T>
void AttentionBlock<T>::backward_targets(const Context& ctx, ParameterSet<T>& parameters,
                                         const StepInput& step, Rows<const T> x,
                                         AttentionSaved<T>& saved, TargetSaved<T>& targets,
                                         Rows<const T> dy, AttentionScratch<T>& scratch,
                                         Rows<T> dx) const {
  using A = Accum<T>;
  const std::int64_t n = x.rows, m = step.targets.shape[0];
  const Rows<T> dmixed = first_rows<T>(scratch.dmixed, m);
  const GateAndQuery<const T> own(options_, first_rows<T>(std::as_const(targets.projected), m));
  const GateAndQuery<T> down(options_, first_rows<T>(targets.dprojected, m));
  ops::linear_backward<T>(ctx, first_rows<T>(std::as_const(saved.mixed), m), output_.packed(), dy,
                          {},
                          {.dx = dmixed,
                           .dw = output_.gradient(parameters),
                           .db = vector_gradient(parameters, output_bias_)});
  mix_backward(ctx, parameters, step.with_target_rows(),
               first_rows<T>(std::as_const(targets.attended), m), own.u, dmixed, saved,
               first_rows<T>(scratch.dattended, m), down.u);
  if (step.few_targets) {
    attend_targets_backward(ctx, parameters, step, saved, targets, scratch);
  } else {
    attend_all_backward(ctx, parameters, step, saved, targets, scratch);
  }
  ops::norm_backward<T>(
      ctx, x, first_rows<T>(std::as_const(scratch.dnormed), n),
      norm_options(parameters, input_norm_),
      {first_values<A>(saved.input_mean, n), first_values<A>(saved.input_rstd, n)},
      {.dx = dx,
       .dweight = vector_gradient(parameters, input_norm_.weight),
       .dbias = vector_gradient(parameters, input_norm_.bias)});
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
