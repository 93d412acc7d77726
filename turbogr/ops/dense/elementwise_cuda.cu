#include "turbogr/cuda/row_launch.cuh"
#include "turbogr/ops/dense/elementwise_kernels.h"

namespace turbogr::ops::kernels {
namespace {

using cuda::Eight;
using cuda::kColumns;
using cuda::over_columns;
using cuda::RowLaunch;

template <class A>
__device__ A silu_slope(A x) {
  const A s = cuda::sigmoid(x);
  return s * (1 + x * (1 - s));
}

template <class T, bool kVector>
__global__ void swiglu_kernel(Rows<const T> a, Rows<const T> b, Rows<T> y) {
  over_columns(a.rows, a.cols, [&](std::int64_t r, std::int64_t c) {
    auto x = cuda::load8<kVector>(a.row(r) + c, a.cols - c);
    const auto up = cuda::load8<kVector>(b.row(r) + c, a.cols - c);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) x[i] = x[i] * cuda::sigmoid(x[i]) * up[i];
    cuda::store8<kVector>(y.row(r) + c, a.cols - c, x);
  });
}

template <class T, bool kVector>
__global__ void swiglu_backward_kernel(Rows<const T> a, Rows<const T> b, Rows<const T> dy,
                                       Rows<T> da, Rows<T> db) {
  over_columns(a.rows, a.cols, [&](std::int64_t r, std::int64_t c) {
    const auto x = cuda::load8<kVector>(a.row(r) + c, a.cols - c);
    auto up = cuda::load8<kVector>(b.row(r) + c, a.cols - c);
    auto d = cuda::load8<kVector>(dy.row(r) + c, a.cols - c);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const auto s = cuda::sigmoid(x[i]);
      up[i] = d[i] * up[i] * (s * (1 + x[i] * (1 - s)));
      d[i] = d[i] * x[i] * s;
    }
    cuda::store8<kVector>(da.row(r) + c, a.cols - c, up);
    cuda::store8<kVector>(db.row(r) + c, a.cols - c, d);
  });
}

template <class T, bool kVector>
__global__ void silu_kernel(Rows<const T> x, Rows<T> y) {
  over_columns(x.rows, x.cols, [&](std::int64_t r, std::int64_t c) {
    auto value = cuda::load8<kVector>(x.row(r) + c, x.cols - c);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) value[i] *= cuda::sigmoid(value[i]);
    cuda::store8<kVector>(y.row(r) + c, x.cols - c, value);
  });
}

template <class T, bool kVector>
__global__ void silu_backward_kernel(Rows<const T> x, Rows<const T> dy, Rows<T> dx) {
  over_columns(x.rows, x.cols, [&](std::int64_t r, std::int64_t c) {
    const auto value = cuda::load8<kVector>(x.row(r) + c, x.cols - c);
    auto d = cuda::load8<kVector>(dy.row(r) + c, x.cols - c);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) d[i] *= silu_slope(value[i]);
    cuda::store8<kVector>(dx.row(r) + c, x.cols - c, d);
  });
}

// Rows whose columns are all in the team's registers.
template <class T, bool kVector>
__global__ void l2_normalize_kernel(Rows<const T> x, Accum<T> eps, Rows<T> y, Accum<T>* inverse) {
  using A = Accum<T>;
  __shared__ A shared[32];
  const std::int64_t c = std::int64_t{threadIdx.x} * kColumns;
  const std::int64_t r = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const bool active = r < x.rows && c < x.cols;
  Eight<A> value = {};
  A sums[1] = {0};
  if (active) {
    value = cuda::load8<kVector>(x.row(r) + c, x.cols - c);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) sums[0] += value[i] * value[i];
  }
  cuda::team_sum(sums, shared);
  const A scale = A(1) / max(sqrt(sums[0]), eps);
  if (r < x.rows && threadIdx.x == 0) inverse[r] = scale;
  if (!active) return;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) value[i] *= scale;
  cuda::store8<kVector>(y.row(r) + c, x.cols - c, value);
}

template <class T, bool kVector>
__global__ void l2_normalize_backward_kernel(Rows<const T> x, Rows<const T> dy,
                                             const Accum<T>* inverse, Accum<T> shortest,
                                             Rows<T> dx) {
  using A = Accum<T>;
  __shared__ A shared[32];
  const std::int64_t c = std::int64_t{threadIdx.x} * kColumns;
  const std::int64_t r = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const bool active = r < x.rows && c < x.cols;
  const A scale = r < x.rows ? inverse[r] : A(0);
  Eight<A> value = {}, d = {};
  A along[1] = {0};
  if (active) {
    value = cuda::load8<kVector>(x.row(r) + c, x.cols - c);
    d = cuda::load8<kVector>(dy.row(r) + c, x.cols - c);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) along[0] += value[i] * d[i];
  }
  cuda::team_sum(along, shared);
  if (!active) return;
  const A part = scale == shortest ? A(0) : along[0] * scale * scale;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) d[i] = (d[i] - value[i] * part) * scale;
  cuda::store8<kVector>(dx.row(r) + c, x.cols - c, d);
}

}  // namespace

template <class T>
void swiglu(Cuda cuda, Rows<const T> a, Rows<const T> b, Rows<T> y) {
  if (a.rows == 0 || a.cols == 0) return;
  const RowLaunch l(cuda, a.rows, a.cols);
  const bool vectors = cuda::vectorable(a) && cuda::vectorable(b) && cuda::vectorable(y);
  cuda::choose_vector<T>(vectors, [&](auto vector) {
    swiglu_kernel<T, vector.value><<<l.blocks, l.block, 0, l.stream>>>(a, b, y);
  });
  cuda::check_launch("swiglu");
}

template <class T>
void swiglu_backward(Cuda cuda, Rows<const T> a, Rows<const T> b, Rows<const T> dy, Rows<T> da,
                     Rows<T> db) {
  if (a.rows == 0 || a.cols == 0) return;
  const RowLaunch l(cuda, a.rows, a.cols);
  const bool vectors = cuda::vectorable(a) && cuda::vectorable(b) && cuda::vectorable(dy) &&
                       cuda::vectorable(da) && cuda::vectorable(db);
  cuda::choose_vector<T>(vectors, [&](auto vector) {
    swiglu_backward_kernel<T, vector.value><<<l.blocks, l.block, 0, l.stream>>>(a, b, dy, da, db);
  });
  cuda::check_launch("swiglu_backward");
}

template <class T>
void silu(Cuda cuda, Rows<const T> x, Rows<T> y) {
  if (x.rows == 0 || x.cols == 0) return;
  const RowLaunch l(cuda, x.rows, x.cols);
  cuda::choose_vector<T>(cuda::vectorable(x) && cuda::vectorable(y), [&](auto vector) {
    silu_kernel<T, vector.value><<<l.blocks, l.block, 0, l.stream>>>(x, y);
  });
  cuda::check_launch("silu");
}

template <class T>
void silu_backward(Cuda cuda, Rows<const T> x, Rows<const T> dy, Rows<T> dx) {
  if (x.rows == 0 || x.cols == 0) return;
  const RowLaunch l(cuda, x.rows, x.cols);
  const bool vectors = cuda::vectorable(x) && cuda::vectorable(dy) && cuda::vectorable(dx);
  cuda::choose_vector<T>(vectors, [&](auto vector) {
    silu_backward_kernel<T, vector.value><<<l.blocks, l.block, 0, l.stream>>>(x, dy, dx);
  });
  cuda::check_launch("silu_backward");
}

template <class T>
void l2_normalize(Cuda cuda, Rows<const T> x, const L2NormalizeOptions& options, Rows<T> y,
                  View<Accum<T>, 1> inverse) {
  cuda::check_width("l2_normalize", x.cols);
  if (x.rows == 0) return;
  const RowLaunch l(cuda, x.rows, x.cols);
  cuda::choose_vector<T>(cuda::vectorable(x) && cuda::vectorable(y), [&](auto vector) {
    l2_normalize_kernel<T, vector.value><<<l.blocks, l.block, 0, l.stream>>>(
        x, static_cast<Accum<T>>(options.eps), y, inverse.data);
  });
  cuda::check_launch("l2_normalize");
}

template <class T>
void l2_normalize_backward(Cuda cuda, Rows<const T> x, Rows<const T> dy,
                           View<const Accum<T>, 1> inverse, const L2NormalizeOptions& options,
                           Rows<T> dx) {
  cuda::check_width("l2_normalize_backward", x.cols);
  if (x.rows == 0) return;
  const RowLaunch l(cuda, x.rows, x.cols);
  const bool vectors = cuda::vectorable(x) && cuda::vectorable(dy) && cuda::vectorable(dx);
  cuda::choose_vector<T>(vectors, [&](auto vector) {
    l2_normalize_backward_kernel<T, vector.value><<<l.blocks, l.block, 0, l.stream>>>(
        x, dy, inverse.data, Accum<T>(1) / static_cast<Accum<T>>(options.eps), dx);
  });
  cuda::check_launch("l2_normalize_backward");
}

#define TGR_INSTANTIATE(T)                                                                     \
  template void swiglu<T>(Cuda, Rows<const T>, Rows<const T>, Rows<T>);                        \
  template void swiglu_backward<T>(Cuda, Rows<const T>, Rows<const T>, Rows<const T>, Rows<T>, \
                                   Rows<T>);                                                   \
  template void silu<T>(Cuda, Rows<const T>, Rows<T>);                                         \
  template void silu_backward<T>(Cuda, Rows<const T>, Rows<const T>, Rows<T>);                 \
  template void l2_normalize<T>(Cuda, Rows<const T>, const L2NormalizeOptions&, Rows<T>,       \
                                View<Accum<T>, 1>);                                            \
  template void l2_normalize_backward<T>(Cuda, Rows<const T>, Rows<const T>,                   \
                                         View<const Accum<T>, 1>, const L2NormalizeOptions&,   \
                                         Rows<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
