#include "bench/row_case.h"
#include "turbogr/ops/dense/dropout.h"
#include "turbogr/ops/dense/l2_normalize.h"
#include "turbogr/ops/dense/linear.h"
#include "turbogr/ops/dense/swiglu.h"
#include "turbogr/ops/rows/combine_input.h"

namespace turbogr::bench {
namespace {

constexpr ops::DropoutOptions kDropout = {.rate = 0.2, .seed = 1, .site = 3};

// Bytes of `passes` times over all rows.
template <class T>
Work passes_over(double passes, std::int64_t rows, std::int64_t cols) {
  return {.bytes = passes * static_cast<double>(rows) * static_cast<double>(cols) * sizeof(T)};
}

// The projection of a layer: [width] to [u | v | q | k] and one more, with SiLU.
template <class T>
struct LinearRun {
  using A = Accum<T>;
  const Context& ctx;
  std::int64_t rows, inputs, outputs;
  Buffers buffers;
  View<T, 2> x, w, dy, y, z, dx;
  View<A, 1> bias, db;
  View<A, 2> dw;
  ops::PackedWeight<T> weight;
  std::size_t scratch_bytes;

  LinearRun(const Context& ctx_in, const Batch& batch)
      : ctx(ctx_in),
        rows(batch.rows()),
        inputs(batch.problem.width()),
        outputs(5 * inputs),
        buffers(batch),
        x(buffers.input<T>(rows, inputs)),
        w(buffers.input<T>(inputs, outputs, 1 / std::sqrt(static_cast<double>(inputs)))),
        dy(buffers.input<T>(rows, outputs)),
        y(buffers.output<T>(rows, outputs)),
        z(buffers.output<T>(rows, outputs)),
        dx(buffers.output<T>(rows, inputs)),
        bias(buffers.input_vector<A>(outputs)),
        db(buffers.sum_vector<A>(outputs)),
        dw(buffers.sum<A>(inputs, outputs)),
        weight(ctx, inputs, outputs) {
    scratch_bytes = std::max(ops::linear_workspace_bytes(ctx, weight),
                             ops::linear_backward_workspace_bytes(ctx, weight, rows));
    ctx.workspace().reserve(scratch_bytes);
    weight.pack(ctx, w);
    scratch_bytes += weight.bytes();
  }

  double products() const {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(inputs) *
           static_cast<double>(outputs);
  }
  Work forward_work() const { return {.flops = products()}; }
  Work backward_work() const { return {.flops = 2 * products()}; }
  void forward() {
    ops::linear<T>(ctx, x, weight, {.bias = bias, .activation = ops::Activation::kSilu}, y, z);
  }
  void backward() {
    ops::linear_backward<T>(ctx, x, weight, dy, {ops::Activation::kSilu, z}, {dx, dw, db});
  }
};

// Two halves of one projection's output.
template <class T>
struct SwigluRun {
  const Context& ctx;
  std::int64_t rows, cols;
  Buffers buffers;
  View<T, 2> ab, dy, y, dab;
  std::size_t scratch_bytes = 0;

  SwigluRun(const Context& ctx_in, const Batch& batch)
      : ctx(ctx_in),
        rows(batch.rows()),
        cols(batch.problem.width()),
        buffers(batch),
        ab(buffers.input<T>(rows, 2 * cols)),
        dy(buffers.input<T>(rows, cols)),
        y(buffers.output<T>(rows, cols)),
        dab(buffers.output<T>(rows, 2 * cols)) {}

  Rows<const T> half(int which) const { return Rows<const T>(ab).columns(which * cols, cols); }
  Work forward_work() const { return passes_over<T>(3, rows, cols); }
  Work backward_work() const { return passes_over<T>(5, rows, cols); }
  void forward() { ops::swiglu<T>(ctx, half(0), half(1), y); }
  void backward() {
    const Rows<T> gradients = dab;
    ops::swiglu_backward<T>(ctx, half(0), half(1), dy, gradients.columns(0, cols),
                            gradients.columns(cols, cols));
  }
};

template <class T>
struct DropoutRun {
  const Context& ctx;
  std::int64_t rows, cols;
  Buffers buffers;
  View<T, 2> x, dy, y, dx;
  std::size_t scratch_bytes = 0;

  DropoutRun(const Context& ctx_in, const Batch& batch)
      : ctx(ctx_in),
        rows(batch.rows()),
        cols(batch.problem.width()),
        buffers(batch),
        x(buffers.input<T>(rows, cols)),
        dy(buffers.input<T>(rows, cols)),
        y(buffers.output<T>(rows, cols)),
        dx(buffers.output<T>(rows, cols)) {}

  Work forward_work() const { return passes_over<T>(2, rows, cols); }
  Work backward_work() const { return passes_over<T>(2, rows, cols); }
  void forward() { ops::dropout<T>(ctx, x, kDropout, y); }
  void backward() { ops::dropout_backward<T>(ctx, dy, kDropout, dx); }
};

template <class T>
struct L2NormalizeRun {
  const Context& ctx;
  std::int64_t rows, cols;
  Buffers buffers;
  View<T, 2> x, dy, y, dx;
  View<Accum<T>, 1> inverse;
  std::size_t scratch_bytes = 0;

  L2NormalizeRun(const Context& ctx_in, const Batch& batch)
      : ctx(ctx_in),
        rows(batch.rows()),
        cols(batch.problem.width()),
        buffers(batch),
        x(buffers.input<T>(rows, cols)),
        dy(buffers.input<T>(rows, cols)),
        y(buffers.output<T>(rows, cols)),
        dx(buffers.output<T>(rows, cols)),
        inverse(buffers.output_vector<Accum<T>>(rows)) {}

  Work forward_work() const { return passes_over<T>(2, rows, cols); }
  Work backward_work() const { return passes_over<T>(3, rows, cols); }
  void forward() { ops::l2_normalize<T>(ctx, x, {}, y, inverse); }
  void backward() { ops::l2_normalize_backward<T>(ctx, x, dy, inverse, {}, dx); }
};

template <class T>
struct CombineInputRun {
  const Context& ctx;
  std::vector<std::int64_t> offsets;
  std::int64_t rows, cols;
  Buffers buffers;
  View<T, 2> e, p, dx, x, de;
  View<Accum<T>, 2> dp;
  ops::CombineInputOptions<T> options;
  std::size_t scratch_bytes = 0;

  CombineInputRun(const Context& ctx_in, const Batch& batch)
      : ctx(ctx_in),
        offsets(batch.offsets()),
        rows(batch.rows()),
        cols(batch.problem.width()),
        buffers(batch),
        e(buffers.input<T>(rows, cols, 1 / std::sqrt(static_cast<double>(cols)))),
        p(buffers.input<T>(batch.problem.max_length, cols)),
        dx(buffers.input<T>(rows, cols)),
        x(buffers.output<T>(rows, cols)),
        de(buffers.output<T>(rows, cols)),
        dp(buffers.sum<Accum<T>>(batch.problem.max_length, cols)),
        options{.scale = std::sqrt(static_cast<double>(cols)), .dropout = kDropout} {}

  Jagged<const T> jagged(const View<T, 2>& values) const {
    return {Rows<const T>(values), {offsets.data(), {static_cast<std::int64_t>(offsets.size())}}};
  }
  Work forward_work() const { return passes_over<T>(2, rows, cols); }
  Work backward_work() const { return passes_over<T>(2, rows, cols); }
  void forward() { ops::combine_input<T>(ctx, jagged(e), p, options, x); }
  void backward() {
    ops::combine_input_backward<T>(ctx, jagged(dx), options, {.de = de, .dp = dp});
  }
};

}  // namespace

std::vector<OpFamily> dense_families() {
  return {row_family<LinearRun>("linear"), row_family<SwigluRun>("swiglu"),
          row_family<DropoutRun>("dropout"), row_family<L2NormalizeRun>("l2_normalize"),
          row_family<CombineInputRun>("combine_input")};
}

}  // namespace turbogr::bench
