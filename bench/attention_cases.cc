#include <cstring>

#include "bench/numbers.h"
#include "bench/op_case.h"
#include "bench/padded_attention.h"
#include "turbogr/ops/attention/fuxi_attention.h"
#include "turbogr/ops/attention/hstu_attention.h"
#include "turbogr/ops/attention/time_bucket.h"

namespace turbogr::bench {
namespace {

// Rounding differs between the two paths (order of sums; the padded one also rounds its maps to
// bf16).
constexpr double kAllowedF32 = 1e-3;
constexpr double kAllowedBf16 = 5e-2;

// Buffers of one attention problem: q, k, v as slices of one projection output, as in a layer.
template <class T, bool kFuxi>
struct AttentionBench {
  const Context& ctx;
  OpProblem problem;
  std::vector<std::int64_t> offsets;
  std::int64_t tokens, width, out_width;
  Tensor q, k, v, dout, out, dq, dk, dv;
  Tensor position, time, dposition, dtime;
  std::vector<std::int64_t> key_times, query_times;
  std::unique_ptr<PaddedAttention> padded;
  bool with_position, with_time;

  AttentionBench(const Context& ctx_in, const OpProblem& problem_in)
      : ctx(ctx_in),
        problem(problem_in),
        offsets(problem.offsets()),
        tokens(problem.tokens()),
        width(problem.width()),
        out_width(kFuxi ? 3 * width : width) {
    const DType dtype = dtype_of<T>();
    with_position = problem.bias == "position" || problem.bias == "both";
    with_time = problem.bias == "time" || problem.bias == "both";
    // Scores of about unit size, so that SiLU is neither linear nor flat.
    const double scale = 1.0 / std::sqrt(std::sqrt(static_cast<double>(problem.head_dim)));
    q = random_tensor(dtype, {tokens, width}, problem.seed + 1, scale);
    k = random_tensor(dtype, {tokens, width}, problem.seed + 2, scale);
    v = random_tensor(dtype, {tokens, width}, problem.seed + 3);
    dout = random_tensor(dtype, {tokens, out_width}, problem.seed + 4);
    out = Tensor(dtype, {tokens, out_width});
    for (Tensor* gradient : {&dq, &dk, &dv}) *gradient = Tensor(dtype, {tokens, width});
    position = random_tensor(DType::kF32, {2 * problem.max_length - 1}, problem.seed + 5, 0.02);
    time = random_tensor(DType::kF32, {ops::kTimeBuckets}, problem.seed + 6, 0.02);
    dposition = Tensor(DType::kF32, position.shape());
    dtime = Tensor(DType::kF32, time.shape());
    make_times();
    const auto shape = shape_of();
    ctx.workspace().reserve(std::max(workspace_forward(shape), workspace_backward(shape)));

    padded = std::make_unique<PaddedAttention>(ctx, PaddedProblem{.lengths = problem.lengths,
                                                                  .heads = problem.heads,
                                                                  .head_dim = problem.head_dim,
                                                                  .norm_length = norm_length(),
                                                                  .fuxi = kFuxi,
                                                                  .with_position = with_position,
                                                                  .with_time = with_time,
                                                                  .dtype = dtype});
    padded->set_inputs(q, k, v, position, time, key_times, query_times, dout);
  }

  double norm_length() const { return static_cast<double>(problem.max_length + 11); }

  // Seconds between events: mostly short, sometimes a night or a week, some events at the same
  // time.
  void make_times() {
    PhiloxStream random(problem.seed + 7);
    for (const std::int64_t length : problem.lengths) {
      std::int64_t now = 1'650'000'000;
      for (std::int64_t i = 0; i < length; ++i) {
        key_times.push_back(now);
        const double draw = random.uniform();
        now += draw < 0.2    ? 0
               : draw < 0.95 ? static_cast<std::int64_t>(60 * random.uniform())
                             : static_cast<std::int64_t>(40000 * random.uniform());
        query_times.push_back(now);
      }
    }
  }

  ops::AttentionShape shape_of() const {
    return {.threads = ctx.threads(),
            .tokens = tokens,
            .batch = static_cast<std::int64_t>(problem.lengths.size()),
            .max_length = problem.longest(),
            .heads = problem.heads,
            .query_width = problem.head_dim,
            .value_width = problem.head_dim};
  }
  static std::size_t workspace_forward(const ops::AttentionShape& shape) {
    return kFuxi ? ops::fuxi_attention_workspace_bytes<T>(shape)
                 : ops::hstu_attention_workspace_bytes<T>(shape);
  }
  static std::size_t workspace_backward(const ops::AttentionShape& shape) {
    return kFuxi ? ops::fuxi_attention_backward_workspace_bytes<T>(shape)
                 : ops::hstu_attention_backward_workspace_bytes<T>(shape);
  }

  Jagged<const T> queries() const {
    return {std::as_const(q).template view<T, 2>(),
            {offsets.data(), {static_cast<std::int64_t>(offsets.size())}}};
  }
  static Rows<const T> rows(const Tensor& tensor) { return tensor.view<T, 2>(); }

  ops::AttentionBias<T> bias() const {
    ops::AttentionBias<T> tables;
    if (with_position) tables.position = position.view<float, 1>();
    if (with_time) {
      tables.time = time.view<float, 1>();
      tables.key_times = {key_times.data(), {tokens}};
      tables.query_times = {query_times.data(), {tokens}};
    }
    return tables;
  }

  void forward() {
    if constexpr (kFuxi) {
      ops::fuxi_attention<T>(ctx, queries(), rows(k), rows(v), bias(),
                             {.heads = problem.heads, .norm_length = norm_length()},
                             out.view<T, 2>());
    } else {
      ops::hstu_attention<T>(ctx, queries(), rows(k), rows(v), bias(),
                             {.heads = problem.heads, .norm_length = norm_length()},
                             out.view<T, 2>());
    }
  }

  void backward() {
    ops::AttentionBiasGradient<T> tables;
    if (with_position) tables.position = dposition.view<float, 1>();
    if (with_time) tables.time = dtime.view<float, 1>();
    const auto call = [&](auto&& op, auto options) {
      options.heads = problem.heads;
      options.norm_length = norm_length();
      op(ctx, queries(), rows(k), rows(v), bias(), options, rows(dout), dq.view<T, 2>(),
         dk.view<T, 2>(), dv.view<T, 2>(), tables);
    };
    if constexpr (kFuxi) {
      call(ops::fuxi_attention_backward<T>, ops::FuxiAttentionOptions{});
    } else {
      call([](const auto&... inputs) { ops::hstu_attention_backward<T>(inputs...); },
           ops::HstuAttentionOptions{});
    }
  }

  // Everything both paths compute, compared.
  double error() {
    for (Tensor* tensor : {&out, &dq, &dk, &dv}) std::memset(tensor->data(), 0xff, tensor->bytes());
    for (Tensor* tensor : {&dposition, &dtime}) std::memset(tensor->data(), 0, tensor->bytes());
    forward();
    backward();
    padded->forward();
    padded->backward();
    double worst = 0;
    const auto compare = [&](const Tensor& ours, const Tensor& theirs) {
      worst = std::max(worst, relative_error(ours, theirs));
    };
    compare(out, padded->out());
    compare(dq, padded->dq());
    compare(dk, padded->dk());
    compare(dv, padded->dv());
    if (with_position) compare(dposition, padded->dposition());
    if (with_time) compare(dtime, padded->dtime());
    return worst;
  }

  std::size_t bytes() const {
    std::size_t total = std::max(workspace_forward(shape_of()), workspace_backward(shape_of()));
    for (const Tensor* tensor :
         {&q, &k, &v, &dout, &out, &dq, &dk, &dv, &position, &time, &dposition, &dtime}) {
      total += tensor->bytes();
    }
    return total + 2 * sizeof(std::int64_t) * static_cast<std::size_t>(tokens);
  }

  // Forward, causal: two products for HSTU; FuXi's two more maps are one value product each.
  double forward_flops() const {
    double pairs = 0;
    for (const std::int64_t n : problem.lengths) {
      pairs += 0.5 * static_cast<double>(n) * static_cast<double>(n + 1);
    }
    const int products = kFuxi ? 4 : 2;
    return pairs * problem.heads * 2.0 * products * static_cast<double>(problem.head_dim);
  }
};

template <class T, bool kFuxi>
std::vector<OpCase> attention_cases(const Context& ctx, const OpProblem& problem) {
  auto bench = std::make_shared<AttentionBench<T, kFuxi>>(ctx, problem);
  // HSTU: 5 products back for 2 forward. FuXi: those 5, and 2 for each of the other two maps.
  const double backward_share = kFuxi ? 9.0 / 4.0 : 2.5;
  const auto error = computed_once([bench] { return bench->error(); });
  std::vector<OpCase> cases;
  const auto add = [&](const char* direction, double share, auto run, auto run_padded) {
    OpCase op;
    op.op = kFuxi ? "fuxi_attention" : "hstu_attention";
    op.direction = direction;
    op.dtype = dtype_of<T>();
    op.flops = share * bench->forward_flops();
    op.peak_bytes = bench->bytes();
    op.padded_bytes = bench->padded->bytes();
    op.run = run;
    op.run_padded = run_padded;
    op.error = error;
    op.allowed_error = dtype_of<T>() == DType::kBf16 ? kAllowedBf16 : kAllowedF32;
    cases.push_back(std::move(op));
  };
  add(
      "forward", 1, [bench] { bench->forward(); }, [bench] { bench->padded->forward(); });
  add(
      "backward", backward_share, [bench] { bench->backward(); },
      [bench] { bench->padded->backward(); });
  add(
      "both", 1 + backward_share,
      [bench] {
        bench->forward();
        bench->backward();
      },
      [bench] {
        bench->padded->forward();
        bench->padded->backward();
      });
  return cases;
}

template <bool kFuxi>
std::vector<OpCase> cases_of(const Context& ctx, const OpProblem& problem, DType dtype) {
  return dtype == DType::kBf16 ? attention_cases<bf16, kFuxi>(ctx, problem)
                               : attention_cases<float, kFuxi>(ctx, problem);
}

}  // namespace

std::vector<OpFamily> attention_families() {
  return {{"hstu_attention", cases_of<false>}, {"fuxi_attention", cases_of<true>}};
}

}  // namespace turbogr::bench
