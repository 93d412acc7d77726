#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "turbogr/ops/dense/dropout_mask.h"
#include "turbogr/ops/dense/norm_kernels.h"
#include "turbogr/ops/dense/norm_simd.h"
#include "turbogr/ops/dense/row_parts.h"

namespace turbogr::ops::kernels {
namespace {

constexpr std::int64_t kFactorGrain = 128;  // the widest stride in which dropout is drawn

std::int64_t factor_count(std::int64_t cols) {
  return (3 * cols + kFactorGrain - 1) / kFactorGrain * kFactorGrain;
}

// Sums for dweight and dbias, one of each a part of the rows.
template <class A>
struct ParameterSums {
  View<A, 2> dweight, dbias;

  ParameterSums(WorkspaceScope& scope, std::int64_t cols)
      : dweight(scope.take<A, 2>({kRowParts, cols})), dbias(scope.take<A, 2>({kRowParts, cols})) {}
  static std::size_t bytes(std::int64_t cols) {
    return 2 * workspace_bytes_of<A>(kRowParts * cols);
  }
};

// Calls body(row, dweight, dbias, worker) for every row, the sums being its part's, then adds the
// parts to the gradients in order.
template <class T, class Body>
void rows_with_sums(Cpu cpu, std::int64_t rows, std::int64_t cols, WorkspaceScope& scope,
                    const GatedNormGradients<T>& gradients, Body&& body) {
  using A = Accum<T>;
  const ParameterSums<A> sums(scope, cols);
  const bool weights = gradients.dweight.data != nullptr;
  const bool biases = gradients.dbias.data != nullptr;
  over_row_parts(cpu.pool, rows,
                 [&](std::int64_t part, std::int64_t begin, std::int64_t end, int worker) {
                   A* dweight = weights ? &sums.dweight(part, 0) : nullptr;
                   A* dbias = biases ? &sums.dbias(part, 0) : nullptr;
                   if (weights) std::fill_n(dweight, cols, A(0));
                   if (biases) std::fill_n(dbias, cols, A(0));
                   for (std::int64_t r = begin; r < end; ++r) body(r, dweight, dbias, worker);
                 });
  if (weights) add_row_parts<A>(cpu.pool, rows, sums.dweight, gradients.dweight);
  if (biases) add_row_parts<A>(cpu.pool, rows, sums.dbias, gradients.dbias);
}

// Before anything is written: dx may be the residual.
template <class T>
void add_residual_sums(Cpu cpu, const NormResidual<T>& residual) {
  using A = Accum<T>;
  if (residual.sums.data == nullptr) return;
  constexpr std::int64_t kCols = 64, kRows = 128;  // summed by themselves
  parallel_ranges(cpu.pool, residual.rows.cols, kCols,
                  [&](std::int64_t begin, std::int64_t end, int) {
                    for (std::int64_t c = begin; c < end; c += kCols) {
                      const std::int64_t count = std::min(kCols, end - c);
                      for (std::int64_t first = 0; first < residual.rows.rows; first += kRows) {
                        A sums[kCols] = {};
                        const std::int64_t last = std::min(first + kRows, residual.rows.rows);
                        for (std::int64_t r = first; r < last; ++r) {
                          const T* row = residual.rows.row(r) + c;
                          for (std::int64_t i = 0; i < count; ++i) sums[i] += convert<A>(row[i]);
                        }
                        for (std::int64_t i = 0; i < count; ++i) residual.sums(c + i) += sums[i];
                      }
                    }
                  });
}

// What multiplies the norm, and its slope in what was given.
struct Gate {
  double value, slope;
};
Gate gate_at(const GatedNormOptions<double>& options, double given) {
  if (!options.silu_gate) return {given, 1};
  const double s = 1 / (1 + std::exp(-given));
  return {given * s, s * (1 + given * (1 - s))};
}

// What the vector code is told of every row alike; rows differ in their keys and statistics.
template <class T>
NormRow every_row(const GatedNormOptions<T>& options, const DropoutDraw& draw, NormOutput output,
                  std::int64_t cols) {
  NormRow row = {};
  row.cols = cols;
  row.layer = options.norm.kind == NormKind::kLayer;
  row.silu_gate = options.silu_gate;
  row.eps = static_cast<float>(options.norm.eps);
  row.weight = options.norm.weight.data;
  row.bias = options.norm.bias.data;
  if (has_gate(output)) {
    row.seed = draw.seed;
    row.site = draw.site;
    row.threshold = draw.threshold;
    row.scale = static_cast<float>(draw.scale);
  }
  return row;
}

}  // namespace

template <class T>
void norm(Cpu cpu, Rows<const T> x, Rows<const T> gate, const GatedNormOptions<T>& options,
          NormOutput output, Rows<T> y, const NormStatistics<Accum<T>>& statistics) {
  const auto forward = norm_table(cpu.simd).of<T>().forward[static_cast<int>(output)];
  const DropoutDraw draw(options.dropout);
  const NormRow every = every_row(options, draw, output, x.cols);
  WorkspaceScope scope(cpu.workspace);
  const auto factors = scope.take<float, 2>({cpu.pool.size(), factor_count(x.cols)});
  parallel_ranges(cpu.pool, x.rows, 32, [&](std::int64_t begin, std::int64_t end, int worker) {
    NormRow row = every;
    row.factors = &factors(worker, 0);
    for (std::int64_t r = begin; r < end; ++r) {
      row.row_key = draw.row(r).row_key;
      forward(row, x.row(r), gate.data == nullptr ? nullptr : gate.row(r), y.row(r));
      if (row.layer) statistics.mean(r) = row.mean;
      statistics.rstd(r) = row.rstd;
    }
  });
}

template <class T>
void norm_backward(Cpu cpu, Rows<const T> x, Rows<const T> gate, Rows<const T> dy,
                   const NormResidual<T>& residual, const GatedNormOptions<T>& options,
                   NormOutput output, const NormStatistics<const Accum<T>>& statistics,
                   const GatedNormGradients<T>& gradients) {
  add_residual_sums(cpu, residual);
  const auto backward = norm_table(cpu.simd).of<T>().backward[static_cast<int>(output)];
  const bool gated = has_gate(output);
  const DropoutDraw draw(options.dropout);
  const NormRow every = every_row(options, draw, output, x.cols);
  WorkspaceScope scope(cpu.workspace);
  const auto factors = scope.take<float, 2>({cpu.pool.size(), factor_count(x.cols)});
  const auto slopes = scope.take<float, 2>({cpu.pool.size(), x.cols});
  rows_with_sums<T>(cpu, x.rows, x.cols, scope, gradients,
                    [&](std::int64_t r, float* dweight, float* dbias, int worker) {
                      NormRow row = every;
                      row.row_key = draw.row(r).row_key;
                      row.factors = &factors(worker, 0);
                      row.mean = row.layer ? statistics.mean(r) : 0.0f;
                      row.rstd = statistics.rstd(r);
                      row.slope = &slopes(worker, 0);
                      row.dweight = dweight;
                      row.dbias = dbias;
                      backward(row, x.row(r), gated ? gate.row(r) : nullptr, dy.row(r),
                               residual.rows.data == nullptr ? nullptr : residual.rows.row(r),
                               gradients.dx.row(r), gated ? gradients.dgate.row(r) : nullptr);
                    });
}

// The specification.
template <>
void norm<double>(Cpu cpu, Rows<const double> x, Rows<const double> gate,
                  const GatedNormOptions<double>& options, NormOutput output, Rows<double> y,
                  const NormStatistics<double>& statistics) {
  const std::int64_t cols = x.cols;
  const bool layer = options.norm.kind == NormKind::kLayer;
  parallel_ranges(cpu.pool, x.rows, 32, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      double mean = 0;
      if (layer) {
        for (std::int64_t c = 0; c < cols; ++c) mean += x(r, c) / static_cast<double>(cols);
        statistics.mean(r) = mean;
      }
      double squares = 0;
      for (std::int64_t c = 0; c < cols; ++c) squares += (x(r, c) - mean) * (x(r, c) - mean);
      const double rstd = 1 / std::sqrt(squares / static_cast<double>(cols) + options.norm.eps);
      statistics.rstd(r) = rstd;
      const DropoutRow drop = dropout_row(options.dropout, r);
      for (std::int64_t c = 0; c < cols; ++c) {
        double a = (x(r, c) - mean) * rstd;
        if (options.norm.weight.data != nullptr) a *= options.norm.weight(c);
        if (options.norm.bias.data != nullptr) a += options.norm.bias(c);
        if (output == NormOutput::kPlain) {
          y(r, c) = a;
          continue;
        }
        if (output == NormOutput::kSwish) {
          y(r, c) = x(r, c) / (1 + std::exp(-a));
          continue;
        }
        const double u = gate_at(options, gate(r, c)).value;
        if (output == NormOutput::kGated) {
          y(r, c) = u * a * drop.factor(c);
        } else {
          y(r, c) = u * drop.factor(c);
          y(r, cols + c) =
              (output == NormOutput::kConcatInput ? x(r, c) : a) * drop.factor(cols + c);
          y(r, 2 * cols + c) = u * a * drop.factor(2 * cols + c);
        }
      }
    }
  });
}

// With hat = (x - mean) rstd, a = hat w + b and d = dL/da: dx = rstd (d w - mean(d w) - hat mean(d
// w hat)), without the middle term for RMSNorm, and what reaches x past the norm.
template <>
void norm_backward<double>(Cpu cpu, Rows<const double> x, Rows<const double> gate,
                           Rows<const double> dy, const NormResidual<double>& residual,
                           const GatedNormOptions<double>& options, NormOutput output,
                           const NormStatistics<const double>& statistics,
                           const GatedNormGradients<double>& gradients) {
  add_residual_sums(cpu, residual);
  const std::int64_t cols = x.cols;
  const bool layer = options.norm.kind == NormKind::kLayer;
  WorkspaceScope scope(cpu.workspace);
  const auto slopes = scope.take<double, 2>({cpu.pool.size(), cols});
  const auto pasts = scope.take<double, 2>({cpu.pool.size(), cols});
  rows_with_sums<double>(
      cpu, x.rows, cols, scope, gradients,
      [&](std::int64_t r, double* dweight, double* dbias, int worker) {
        const double mean = layer ? statistics.mean(r) : 0.0;
        const double rstd = statistics.rstd(r);
        const DropoutRow drop = dropout_row(options.dropout, r);
        double mean_slope = 0;
        double mean_along = 0;
        for (std::int64_t c = 0; c < cols; ++c) {
          const double hat = (x(r, c) - mean) * rstd;
          const double w = options.norm.weight.data == nullptr ? 1.0 : options.norm.weight(c);
          const double b = options.norm.bias.data == nullptr ? 0.0 : options.norm.bias(c);
          const double a = hat * w + b;
          double d = dy(r, c);
          double past = residual.rows.data == nullptr ? 0.0 : residual.rows(r, c);
          if (output == NormOutput::kSwish) {
            const double s = 1 / (1 + std::exp(-a));
            past += d * s;
            d *= x(r, c) * s * (1 - s);
          } else if (has_gate(output)) {
            const Gate u = gate_at(options, gate(r, c));
            if (output == NormOutput::kGated) {
              const double dropped = dy(r, c) * drop.factor(c);
              gradients.dgate(r, c) = dropped * a * u.slope;
              d = dropped * u.value;
            } else {
              const double both = dy(r, 2 * cols + c) * drop.factor(2 * cols + c);
              gradients.dgate(r, c) = (dy(r, c) * drop.factor(c) + both * a) * u.slope;
              const double middle = dy(r, cols + c) * drop.factor(cols + c);
              const bool input = output == NormOutput::kConcatInput;
              d = (input ? 0.0 : middle) + both * u.value;
              if (input) past += middle;
            }
          }
          pasts(worker, c) = past;
          if (dweight != nullptr) dweight[c] += d * hat;
          if (dbias != nullptr) dbias[c] += d;
          slopes(worker, c) = d * w;
          if (layer) mean_slope += d * w / static_cast<double>(cols);
          mean_along += d * w * hat / static_cast<double>(cols);
        }
        for (std::int64_t c = 0; c < cols; ++c) {
          const double hat = (x(r, c) - mean) * rstd;
          gradients.dx(r, c) =
              rstd * (slopes(worker, c) - mean_slope - hat * mean_along) + pasts(worker, c);
        }
      });
}

template <class T>
std::size_t norm_workspace_bytes(Cpu cpu, std::int64_t cols) {
  const std::int64_t threads = cpu.pool.size();
  return workspace_bytes_of<float>(threads * factor_count(cols)) +
         2 * workspace_bytes_of<Accum<T>>(threads * cols) + ParameterSums<Accum<T>>::bytes(cols);
}

#define TGR_INSTANTIATE(T)                                                                         \
  template void norm<T>(Cpu, Rows<const T>, Rows<const T>, const GatedNormOptions<T>&, NormOutput, \
                        Rows<T>, const NormStatistics<Accum<T>>&);                                 \
  template void norm_backward<T>(Cpu, Rows<const T>, Rows<const T>, Rows<const T>,                 \
                                 const NormResidual<T>&, const GatedNormOptions<T>&, NormOutput,   \
                                 const NormStatistics<const Accum<T>>&,                            \
                                 const GatedNormGradients<T>&);                                    \
  template std::size_t norm_workspace_bytes<T>(Cpu, std::int64_t);
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE
template std::size_t norm_workspace_bytes<double>(Cpu, std::int64_t);

}  // namespace turbogr::ops::kernels
