#include "turbogr/cuda/row_launch.cuh"
#include "turbogr/ops/dense/row_arithmetic_kernels.h"

namespace turbogr::ops::kernels {
namespace {

using cuda::kColumns;
using cuda::over_columns;
using cuda::RowLaunch;

template <class T, bool kVector>
__global__ void add_rows_kernel(Rows<const T> x, Rows<T> y) {
  over_columns(x.rows, x.cols, [&](std::int64_t r, std::int64_t c) {
    const auto more = cuda::load8<kVector>(x.row(r) + c, x.cols - c);
    auto sum = cuda::load8<kVector>(y.row(r) + c, x.cols - c);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) sum[i] += more[i];
    cuda::store8<kVector>(y.row(r) + c, x.cols - c, sum);
  });
}

template <class T, bool kVector>
__global__ void multiply_rows_kernel(Rows<const T> a, Rows<const T> b, Rows<T> y) {
  over_columns(a.rows, a.cols, [&](std::int64_t r, std::int64_t c) {
    auto product = cuda::load8<kVector>(a.row(r) + c, a.cols - c);
    const auto factor = cuda::load8<kVector>(b.row(r) + c, a.cols - c);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) product[i] *= factor[i];
    cuda::store8<kVector>(y.row(r) + c, a.cols - c, product);
  });
}

template <class T, bool kVector>
__global__ void multiply_rows_backward_kernel(Rows<const T> a, Rows<const T> b, Rows<const T> dy,
                                              Rows<T> da, Rows<T> db) {
  over_columns(a.rows, a.cols, [&](std::int64_t r, std::int64_t c) {
    auto left = cuda::load8<kVector>(a.row(r) + c, a.cols - c);
    auto right = cuda::load8<kVector>(b.row(r) + c, a.cols - c);
    const auto d = cuda::load8<kVector>(dy.row(r) + c, a.cols - c);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      right[i] *= d[i];
      left[i] *= d[i];
    }
    cuda::store8<kVector>(da.row(r) + c, a.cols - c, right);
    cuda::store8<kVector>(db.row(r) + c, a.cols - c, left);
  });
}

}  // namespace

template <class T>
void add_rows(Cuda cuda, Rows<const T> x, Rows<T> y) {
  if (x.rows == 0 || x.cols == 0) return;
  const RowLaunch l(cuda, x.rows, x.cols);
  cuda::choose_vector<T>(cuda::vectorable(x) && cuda::vectorable(y), [&](auto vector) {
    add_rows_kernel<T, vector.value><<<l.blocks, l.block, 0, l.stream>>>(x, y);
  });
  cuda::check_launch("add_rows");
}

template <class T>
void multiply_rows(Cuda cuda, Rows<const T> a, Rows<const T> b, Rows<T> y) {
  if (a.rows == 0 || a.cols == 0) return;
  const RowLaunch l(cuda, a.rows, a.cols);
  const bool vectors = cuda::vectorable(a) && cuda::vectorable(b) && cuda::vectorable(y);
  cuda::choose_vector<T>(vectors, [&](auto vector) {
    multiply_rows_kernel<T, vector.value><<<l.blocks, l.block, 0, l.stream>>>(a, b, y);
  });
  cuda::check_launch("multiply_rows");
}

template <class T>
void multiply_rows_backward(Cuda cuda, Rows<const T> a, Rows<const T> b, Rows<const T> dy,
                            Rows<T> da, Rows<T> db) {
  if (a.rows == 0 || a.cols == 0) return;
  const RowLaunch l(cuda, a.rows, a.cols);
  const bool vectors = cuda::vectorable(a) && cuda::vectorable(b) && cuda::vectorable(dy) &&
                       cuda::vectorable(da) && cuda::vectorable(db);
  cuda::choose_vector<T>(vectors, [&](auto vector) {
    multiply_rows_backward_kernel<T, vector.value>
        <<<l.blocks, l.block, 0, l.stream>>>(a, b, dy, da, db);
  });
  cuda::check_launch("multiply_rows_backward");
}

#define TGR_INSTANTIATE(T)                                                                   \
  template void add_rows<T>(Cuda, Rows<const T>, Rows<T>);                                   \
  template void multiply_rows<T>(Cuda, Rows<const T>, Rows<const T>, Rows<T>);               \
  template void multiply_rows_backward<T>(Cuda, Rows<const T>, Rows<const T>, Rows<const T>, \
                                          Rows<T>, Rows<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
