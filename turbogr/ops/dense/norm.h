// LayerNorm and RMSNorm over rows, with or without affine weights, and the statistics the backward
// pass needs.
//
//   norm<float>(ctx, x, {.kind = NormKind::kRms}, y, {.rstd = rstd});
//   norm_backward<float>(ctx, x, dy, {.kind = NormKind::kRms}, {.rstd = rstd}, {.dx = dx});
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/dense/fp8.h"

namespace turbogr::ops {

enum class NormKind : std::uint8_t {
  kLayer,  // (x - mean) / sqrt(variance + eps)
  kRms     // x / sqrt(mean of squares + eps)
};

template <class T>
struct NormOptions {
  NormKind kind = NormKind::kLayer;
  double eps = 1e-6;
  View<const Accum<T>, 1> weight;  // [D], or empty: ones
  View<const Accum<T>, 1> bias;    // [D], or empty: zeros
};

// A row's statistics. A is Accum<T>, const where they are read. RMSNorm has no mean.
template <class A>
struct NormStatistics {
  View<A, 1> mean;  // [N]
  View<A, 1> rstd;  // [N]
};

// x, y [N, D]; y may be x where no backward pass follows. With y8 the result is quantised, bit for
// bit as quantise makes it of y, and y is scratch.
template <class T>
void norm(const Context& ctx, Rows<const T> x, const NormOptions<T>& options, Rows<T> y,
          const NormStatistics<Accum<T>>& statistics, const Fp8Rows<T>& y8 = {});

template <class T>
struct NormGradients {
  Rows<T> dx;                 // [N, D], overwritten
  View<Accum<T>, 1> dweight;  // [D], added to; empty: not computed
  View<Accum<T>, 1> dbias;    // [D], added to; empty: not computed
  Rows<const T> residual;     // [N, D] added to dx: what reaches x past the norm; or empty
  // [D], the residual's column sums are added to it: the gradient of a bias that was added with x;
  // empty: not computed.
  View<Accum<T>, 1> residual_sums;
};

// dx may be dy or the residual.
template <class T>
void norm_backward(const Context& ctx, Rows<const T> x, Rows<const T> dy,
                   const NormOptions<T>& options, const NormStatistics<const Accum<T>>& statistics,
                   const NormGradients<T>& gradients);

// What norm and norm_backward need of the workspace for rows of D columns.
template <class T>
std::size_t norm_workspace_bytes(const Context& ctx, std::int64_t cols);

// For operators that fuse a norm: throws when options or statistics do not fit [rows, cols].
template <class T>
void check_norm(const char* op, const NormOptions<T>& options,
                const NormStatistics<const Accum<T>>& statistics, std::int64_t rows,
                std::int64_t cols);

}  // namespace turbogr::ops
