#include "turbogr/ops/dense/gemm_cuda.h"
#include "turbogr/ops/dense/matmul_cuda.h"

namespace turbogr::ops {

template <class T>
void gemm(Cuda cuda, const Gemm<T>& p) {
  matmul(cuda, {.in = dtype_of<T>(),
                .out = dtype_of<Accum<T>>(),
                .m = p.c.rows,
                .n = p.c.cols,
                .k = p.a_transposed ? p.a.rows : p.a.cols,
                .a = p.a.data,
                .a_stride = p.a.stride,
                .transpose_a = p.a_transposed,
                .b = p.b.data,
                .b_stride = p.b.stride,
                .transpose_b = p.b_transposed,
                .d = p.c.data,
                .d_stride = p.c.stride,
                .c = p.beta == 0 ? nullptr : p.c.data,
                .c_stride = p.c.stride,
                .beta = p.beta});
}

template void gemm<double>(Cuda, const Gemm<double>&);
template void gemm<float>(Cuda, const Gemm<float>&);
template void gemm<bf16>(Cuda, const Gemm<bf16>&);

}  // namespace turbogr::ops
