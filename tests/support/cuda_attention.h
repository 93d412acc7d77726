// Runs an attention case on the GPU, in a layout that the Hopper kernels take or in one that only
// the portable ones do.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "tests/support/attention_case.h"
#include "tests/support/on_device.h"

namespace turbogr::test {

struct GpuRun {
  bool aligned = false;  // slices begin and stride at multiples of 8 elements
  bool planned = false;  // with a plan made beforehand
  bool deterministic = false;
};

// The inputs of a case in the GPU's memory, and room for the results.
template <class T>
class GpuAttention {
 public:
  GpuAttention(const Context& ctx, const AttentionInputs<T>& in, const GpuRun& run)
      : in_(in), run_(run) {
    const AttentionCase& c = in.shape;
    q_column_ = run.aligned ? 0 : 1;
    v_column_ = round(q_column_ + c.heads * c.dq);
    k_column_ = round(v_column_ + c.heads * c.dv) + (run.aligned ? 8 : 2);
    width_ = round(k_column_ + c.heads * c.dq);
    out_width_ = round(in.out_width()) + (run.aligned ? 8 : 3);
    const std::int64_t n = in.tokens();
    const ops::AttentionProblem<T> host = in.problem();
    Tensor all(dtype_of<T>(), {n, width_});
    put(host.q.values, all, q_column_);
    put(host.k, all, k_column_);
    put(host.v, all, v_column_);
    Tensor dout(dtype_of<T>(), {n, out_width_});
    put(Rows<const T>(in.dout.template view<T, 2>()), dout, 0);
    Tensor out(dtype_of<T>(), {n, out_width_});
    Tensor gradient(dtype_of<T>(), {n, width_});
    Tensor dposition(dtype_of<Accum<T>>(), in.position.shape());
    Tensor dtime(dtype_of<Accum<T>>(), in.time.shape());
    const double nan = std::numeric_limits<double>::quiet_NaN();
    fill<T>(out, nan);
    fill<T>(gradient, nan);
    fill<Accum<T>>(dposition, 0.25);
    fill<Accum<T>>(dtime, 0.25);
    all_ = place(ctx, all);
    dout_ = place(ctx, dout);
    out_ = place(ctx, out);
    gradient_ = place(ctx, gradient);
    dposition_ = place(ctx, dposition);
    dtime_ = place(ctx, dtime);
    position_ = place(ctx, in.position);
    time_ = place(ctx, in.time);
    offsets_ = place(ctx, tensor_of(in.offsets));
    key_times_ = place(ctx, tensor_of(in.key_times));
    query_times_ = place(ctx, tensor_of(in.query_times));
    prefix_ = place(ctx, tensor_of(c.prefix));
    targets_ = place(ctx, tensor_of(c.targets));

    ops::AttentionShape shape = attention_shape(ctx, in);
    shape.device = Device::kCuda;
    shape.tables = c.position || c.time;
    shape.masks = c.window > 0 || !c.prefix.empty() || !c.targets.empty();
    shape.planned = run.planned;
    shape.deterministic = run.deterministic;
    if (c.position) shape.position_length = (in.position.size() + 1) / 2;
    ctx.workspace().reserve(std::max(c.fuxi ? ops::fuxi_attention_workspace_bytes<T>(shape)
                                            : ops::hstu_attention_workspace_bytes<T>(shape),
                                     c.fuxi
                                         ? ops::fuxi_attention_backward_workspace_bytes<T>(shape)
                                         : ops::hstu_attention_backward_workspace_bytes<T>(shape)));
    const auto kind = c.fuxi ? ops::AttentionKind::kFuxi : ops::AttentionKind::kHstu;
    if (run.planned) {
      plan_memory_ =
          Tensor(DType::kU8, {static_cast<std::int64_t>(ops::attention_plan_bytes<T>(kind, shape))},
                 Device::kCuda);
      plan_ = ops::make_attention_plan<T>(
          ctx, kind, {offsets(), times(key_times_), times(query_times_)}, shape, plan_memory_);
    }
  }

  ops::AttentionProblem<T> problem() const {
    const AttentionCase& c = in_.shape;
    ops::AttentionProblem<T> p;
    const Rows<const T> all = all_.view<T, 2>();
    p.q = {all.columns(q_column_, c.heads * c.dq), offsets()};
    p.k = all.columns(k_column_, c.heads * c.dq);
    p.v = all.columns(v_column_, c.heads * c.dv);
    if (c.position) p.bias.position = position_.view<Accum<T>, 1>();
    if (c.time) p.bias.time = time_.view<Accum<T>, 1>();
    if (c.time) p.bias.key_times = key_times_.view<std::int64_t, 1>();
    if (c.time) p.bias.query_times = query_times_.view<std::int64_t, 1>();
    p.heads = c.heads;
    p.alpha = c.alpha;
    p.norm_length = c.norm_length;
    p.mask = {c.window, counts(prefix_), counts(targets_)};
    p.max_length = *std::max_element(c.lengths.begin(), c.lengths.end());
    if (run_.planned) p.plan = &plan_;
    p.deterministic = run_.deterministic;
    return p;
  }
  Rows<T> out() { return Rows<T>(out_.view<T, 2>()).columns(0, in_.out_width()); }
  Rows<const T> dout() const {
    return Rows<const T>(dout_.view<T, 2>()).columns(0, in_.out_width());
  }
  ops::AttentionGradients<T> gradients() {
    const AttentionCase& c = in_.shape;
    const Rows<T> all = gradient_.view<T, 2>();
    ops::AttentionGradients<T> d;
    d.dq = all.columns(q_column_, c.heads * c.dq);
    d.dk = all.columns(k_column_, c.heads * c.dq);
    d.dv = all.columns(v_column_, c.heads * c.dv);
    if (c.position) d.dbias.position = dposition_.view<Accum<T>, 1>();
    if (c.time) d.dbias.time = dtime_.view<Accum<T>, 1>();
    return d;
  }

  void run(const Context& ctx) {
    const AttentionCase& c = in_.shape;
    const ops::AttentionProblem<T> p = problem();
    const ops::AttentionGradients<T> d = gradients();
    if (c.fuxi) {
      const ops::FuxiAttentionOptions o = {c.heads, c.alpha, c.norm_length,
                                           p.mask,  p.plan,  p.deterministic};
      ops::fuxi_attention<T>(ctx, p.q, p.k, p.v, p.bias, o, out());
      ops::fuxi_attention_backward<T>(ctx, p.q, p.k, p.v, p.bias, o, dout(), d.dq, d.dk, d.dv,
                                      d.dbias);
    } else {
      const ops::HstuAttentionOptions o = {.heads = c.heads,
                                           .alpha = c.alpha,
                                           .norm_length = c.norm_length,
                                           .mask = p.mask,
                                           .max_length = p.max_length,
                                           .plan = p.plan,
                                           .deterministic = p.deterministic};
      ops::hstu_attention<T>(ctx, p.q, p.k, p.v, p.bias, o, out());
      ops::hstu_attention_backward<T>(ctx, p.q, p.k, p.v, p.bias, o, dout(), d.dq, d.dk, d.dv,
                                      d.dbias);
    }
  }

  // Columns between the slices must still be poisoned.
  AttentionResults results(const Context& ctx) const {
    const AttentionCase& c = in_.shape;
    const Tensor out = to_host(ctx, out_);
    const Tensor gradient = to_host(ctx, gradient_);
    for (std::int64_t r = 0; r < in_.tokens(); ++r) {
      EXPECT_TRUE(std::isnan(element(out, r * out_width_ + out_width_ - 1)));
      EXPECT_TRUE(std::isnan(element(gradient, r * width_ + k_column_ - 1)));
    }
    AttentionResults results;
    results.out = slice_of<T>(out, 0, in_.out_width());
    results.dq = slice_of<T>(gradient, q_column_, c.heads * c.dq);
    results.dk = slice_of<T>(gradient, k_column_, c.heads * c.dq);
    results.dv = slice_of<T>(gradient, v_column_, c.heads * c.dv);
    results.dposition = to_host(ctx, dposition_);
    results.dtime = to_host(ctx, dtime_);
    return results;
  }

 private:
  std::int64_t round(std::int64_t column) const {
    return run_.aligned ? (column + 7) / 8 * 8 : column;
  }
  static void put(Rows<const T> from, Tensor& to, std::int64_t column) {
    for (std::int64_t r = 0; r < from.rows; ++r) {
      for (std::int64_t c = 0; c < from.cols; ++c) to.view<T, 2>()(r, column + c) = from(r, c);
    }
  }
  Offsets offsets() const { return offsets_.view<std::int64_t, 1>(); }
  View<const std::int64_t, 1> times(const Tensor& tensor) const {
    return in_.shape.time ? tensor.view<std::int64_t, 1>() : View<const std::int64_t, 1>{};
  }
  static View<const std::int64_t, 1> counts(const Tensor& tensor) {
    return tensor.size() > 0 ? tensor.view<std::int64_t, 1>() : View<const std::int64_t, 1>{};
  }

  const AttentionInputs<T>& in_;
  GpuRun run_;
  std::int64_t q_column_, v_column_, k_column_, width_, out_width_;
  Tensor all_, dout_, out_, gradient_, dposition_, dtime_, position_, time_;
  Tensor offsets_, key_times_, query_times_, prefix_, targets_, plan_memory_;
  ops::AttentionPlan plan_;
};

template <class T>
AttentionResults run_attention_on_gpu(const AttentionInputs<T>& in, const GpuRun& run = {}) {
  const Context ctx({.device = Device::kCuda});
  GpuAttention<T> gpu(ctx, in, run);
  gpu.run(ctx);
  return gpu.results(ctx);
}

struct AttentionPart {
  const char* name;
  Tensor AttentionResults::*tensor;
};
inline constexpr AttentionPart kAttentionParts[] = {
    {"out", &AttentionResults::out},     {"dq", &AttentionResults::dq},
    {"dk", &AttentionResults::dk},       {"dv", &AttentionResults::dv},
    {"dtime", &AttentionResults::dtime}, {"dposition", &AttentionResults::dposition}};

inline void expect_same_bits(const AttentionResults& a, const AttentionResults& b) {
  for (const AttentionPart& part : kAttentionParts) {
    const Tensor& x = a.*part.tensor;
    const Tensor& y = b.*part.tensor;
    ASSERT_EQ(x.bytes(), y.bytes());
    EXPECT_TRUE(x.bytes() == 0 || std::memcmp(x.data(), y.data(), x.bytes()) == 0) << part.name;
  }
}

}  // namespace turbogr::test
