#include "turbogr/cuda/row_launch.cuh"
#include "turbogr/ops/dense/elementwise_kernels.h"
#include "turbogr/ops/dense/fp8_cuda.cuh"

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

template <class T, bool kVector, class Store>
__global__ void swiglu_kernel(Rows<const T> a, Rows<const T> b, Store store) {
  store.start();
  over_columns(a.rows, a.cols, [&](std::int64_t r, std::int64_t c) {
    auto x = cuda::load8<kVector>(a.row(r) + c, a.cols - c);
    const auto up = cuda::load8<kVector>(b.row(r) + c, a.cols - c);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) x[i] = x[i] * cuda::sigmoid(x[i]) * up[i];
    store(r, c, x);
  });
  store.finish();
}

// da and db, or one matrix of both.
template <class T, bool kVector>
struct TwoStores {
  PlainStore<T, kVector> a, b;

  __device__ void start() {}
  __device__ void operator()(std::int64_t r, std::int64_t c, const Eight<Accum<T>>& da,
                             const Eight<Accum<T>>& db) {
    a(r, c, da);
    b(r, c, db);
  }
  __device__ void finish() {}
};
struct HalvesStore {
  Fp8Store both;

  __device__ void start() { both.start(); }
  __device__ void operator()(std::int64_t r, std::int64_t c, const Eight<float>& da,
                             const Eight<float>& db) {
    both(r, c, da);
    both(r, both.out.cols / 2 + c, db);
  }
  __device__ void finish() { both.finish(); }
};

template <class T, bool kVector, class Store>
__global__ void swiglu_backward_kernel(Rows<const T> a, Rows<const T> b, Rows<const T> dy,
                                       Store store) {
  store.start();
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
    store(r, c, up, d);
  });
  store.finish();
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
    constexpr bool kVector = vector.value;
    swiglu_kernel<T, kVector><<<l.blocks, l.block, 0, l.stream>>>(a, b, PlainStore<T, kVector>{y});
  });
  cuda::check_launch("swiglu");
}

template <class T>
bool swiglu_to_fp8(Cuda cuda, Rows<const T> a, Rows<const T> b, const Fp8Rows<T>& y8) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (a.rows == 0 || !cuda::vectorable(a) || !cuda::vectorable(b)) return false;
    const RowLaunch l(cuda, a.rows, a.cols);
    swiglu_kernel<T, true><<<l.blocks, l.block, 0, l.stream>>>(a, b, Fp8Store{y8});
    finish_fp8(l.stream, y8);
    cuda::check_launch("swiglu");
    return true;
  } else {
    return false;
  }
}

template <class T>
void swiglu_backward(Cuda cuda, Rows<const T> a, Rows<const T> b, Rows<const T> dy, Rows<T> da,
                     Rows<T> db) {
  if (a.rows == 0 || a.cols == 0) return;
  const RowLaunch l(cuda, a.rows, a.cols);
  const bool vectors = cuda::vectorable(a) && cuda::vectorable(b) && cuda::vectorable(dy) &&
                       cuda::vectorable(da) && cuda::vectorable(db);
  cuda::choose_vector<T>(vectors, [&](auto vector) {
    constexpr bool kVector = vector.value;
    swiglu_backward_kernel<T, kVector>
        <<<l.blocks, l.block, 0, l.stream>>>(a, b, dy, TwoStores<T, kVector>{{da}, {db}});
  });
  cuda::check_launch("swiglu_backward");
}

template <class T>
bool swiglu_backward_to_fp8(Cuda cuda, Rows<const T> a, Rows<const T> b, Rows<const T> dy,
                            const Fp8Rows<T>& both8) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (a.rows == 0 || !cuda::vectorable(a) || !cuda::vectorable(b) || !cuda::vectorable(dy)) {
      return false;
    }
    const RowLaunch l(cuda, a.rows, a.cols);
    swiglu_backward_kernel<T, true>
        <<<l.blocks, l.block, 0, l.stream>>>(a, b, dy, HalvesStore{{both8}});
    finish_fp8(l.stream, both8);
    cuda::check_launch("swiglu_backward");
    return true;
  } else {
    return false;
  }
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
  template bool swiglu_to_fp8<T>(Cuda, Rows<const T>, Rows<const T>, const Fp8Rows<T>&);       \
  template bool swiglu_backward_to_fp8<T>(Cuda, Rows<const T>, Rows<const T>, Rows<const T>,   \
                                          const Fp8Rows<T>&);                                  \
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
