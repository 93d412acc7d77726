#include "bench/row_case.h"
#include "turbogr/ops/dense/gated_norm.h"
#include "turbogr/ops/dense/norm.h"

namespace turbogr::bench {
namespace {

// Buffers of a norm, affine, alone or with its gate.
template <class T>
struct NormBuffers {
  using A = Accum<T>;
  const Context& ctx;
  std::int64_t rows, cols;
  Buffers buffers;
  View<T, 2> x, dy, y, dx;
  View<A, 1> weight, bias, dweight, dbias, mean, rstd;
  std::size_t scratch_bytes = 0;

  NormBuffers(const Context& ctx_in, const Batch& batch, bool with_mean)
      : ctx(ctx_in),
        rows(batch.rows()),
        cols(batch.problem.width()),
        buffers(batch),
        x(buffers.input<T>(rows, cols)),
        dy(buffers.input<T>(rows, cols)),
        y(buffers.output<T>(rows, cols)),
        dx(buffers.output<T>(rows, cols)),
        weight(buffers.input_vector<A>(cols, 0.2, 1)),
        bias(buffers.input_vector<A>(cols, 0.2)),
        dweight(buffers.sum_vector<A>(cols)),
        dbias(buffers.sum_vector<A>(cols)),
        rstd(buffers.output_vector<A>(rows)) {
    // A mean is the small rest of a sum: its error is the mean's of |x|, not its own.
    if (with_mean) mean = buffers.input_vector<A>(rows);
  }

  Work passes(double count) const {
    return {.bytes = count * static_cast<double>(rows) * static_cast<double>(cols) * sizeof(T)};
  }
  ops::NormOptions<T> norm_options(ops::NormKind kind) const {
    return {.kind = kind, .weight = weight, .bias = bias};
  }
  ops::NormStatistics<A> statistics() const { return {mean, rstd}; }
  ops::NormStatistics<const A> saved() const { return {mean, rstd}; }
};

template <class T, ops::NormKind kKind>
struct NormRun : NormBuffers<T> {
  NormRun(const Context& ctx_in, const Batch& batch)
      : NormBuffers<T>(ctx_in, batch, kKind == ops::NormKind::kLayer) {
    this->scratch_bytes = ops::norm_workspace_bytes<T>(this->ctx, this->cols);
    this->ctx.workspace().reserve(this->scratch_bytes);
  }
  Work forward_work() const { return this->passes(2); }
  Work backward_work() const { return this->passes(3); }
  void forward() {
    ops::norm<T>(this->ctx, this->x, this->norm_options(kKind), this->y, this->statistics());
  }
  void backward() {
    ops::norm_backward<T>(this->ctx, this->x, this->dy, this->norm_options(kKind), this->saved(),
                          {this->dx, this->dweight, this->dbias, {}});
  }
};

template <class T>
using LayerNormRun = NormRun<T, ops::NormKind::kLayer>;
template <class T>
using RmsNormRun = NormRun<T, ops::NormKind::kRms>;

template <class T>
struct GatedNormRun : NormBuffers<T> {
  View<T, 2> gate, dgate;
  ops::GatedNormOptions<T> options;

  GatedNormRun(const Context& ctx_in, const Batch& batch)
      : NormBuffers<T>(ctx_in, batch, true),
        gate(this->buffers.template input<T>(this->rows, this->cols)),
        dgate(this->buffers.template output<T>(this->rows, this->cols)),
        options{.norm = this->norm_options(ops::NormKind::kLayer),
                .dropout = {.rate = 0.2, .seed = 1, .site = 7}} {
    this->scratch_bytes = ops::gated_norm_workspace_bytes<T>(this->ctx, this->cols);
    this->ctx.workspace().reserve(this->scratch_bytes);
  }
  Work forward_work() const { return this->passes(3); }
  Work backward_work() const { return this->passes(5); }
  void forward() {
    ops::gated_norm<T>(this->ctx, this->x, gate, options, this->y, this->statistics());
  }
  void backward() {
    ops::gated_norm_backward<T>(this->ctx, this->x, gate, this->dy, options, this->saved(),
                                {this->dx, dgate, this->dweight, this->dbias});
  }
};

}  // namespace

std::vector<OpFamily> norm_families() {
  return {row_family<LayerNormRun>("layer_norm"), row_family<RmsNormRun>("rms_norm"),
          row_family<GatedNormRun>("gated_norm")};
}

}  // namespace turbogr::bench
