// Both operands of an fp8 product are stored along the sum: Hopper has no other way. Sums over a
// width are short ones, as their results are rounded to bf16 anyway; those over all tokens are not.
#include "turbogr/ops/dense/convert_kernels.h"
#include "turbogr/ops/dense/fp8_kernels.h"
#include "turbogr/ops/dense/matmul_cuda.h"

namespace turbogr::ops::kernels {
namespace {

Fp8Input fp8_input(const Fp8Rows<bf16>& x) { return {x.format, &x.scale->inverse}; }

}  // namespace

void fp8_linear(Cuda cuda, const Fp8Rows<bf16>& x, const Fp8Rows<bf16>& weight,
                const LinearOptions<bf16>& options, Rows<bf16> y) {
  WorkspaceScope scratch(cuda.workspace);
  Matmul product = {.in = DType::kU8,
                    .out = DType::kBf16,
                    .m = x.rows,
                    .n = weight.cols,
                    .k = weight.rows,
                    .a = x.by_row,
                    .a_stride = x.cols,
                    .b = weight.by_column,
                    .b_stride = fp8_padded(weight.rows),
                    .transpose_b = true,
                    .d = y.data,
                    .d_stride = y.stride,
                    .a_fp8 = fp8_input(x),
                    .b_fp8 = fp8_input(weight),
                    .short_sums = true};
  if (options.bias.data != nullptr) {  // the library wants it in the format of the result
    const View<bf16, 1> rounded = scratch.take<bf16>(weight.cols);
    convert_values<bf16, float>(cuda, options.bias, rounded);
    product.bias = rounded.data;
  }
  if (options.residual.data != nullptr) {
    product.c = options.residual.data;
    product.c_stride = options.residual.stride;
    product.beta = 1;
  }
  matmul(cuda, product);
}

void fp8_linear_backward(Cuda cuda, const Fp8Rows<bf16>& x, const Fp8Rows<bf16>& weight,
                         const Fp8Rows<bf16>& dz, const LinearGradients<bf16>& gradients) {
  if (gradients.dx.data != nullptr) {
    matmul(cuda, {.in = DType::kU8,
                  .out = DType::kBf16,
                  .m = dz.rows,
                  .n = weight.rows,
                  .k = weight.cols,
                  .a = dz.by_row,
                  .a_stride = dz.cols,
                  .b = weight.by_row,
                  .b_stride = weight.cols,
                  .transpose_b = true,
                  .d = gradients.dx.data,
                  .d_stride = gradients.dx.stride,
                  .a_fp8 = fp8_input(dz),
                  .b_fp8 = fp8_input(weight),
                  .short_sums = true});
  }
  if (gradients.dw.data != nullptr) {
    const std::int64_t tokens = fp8_padded(x.rows);
    matmul(cuda, {.in = DType::kU8,
                  .out = DType::kF32,
                  .m = weight.rows,
                  .n = weight.cols,
                  .k = tokens,
                  .a = x.by_column,
                  .a_stride = tokens,
                  .b = dz.by_column,
                  .b_stride = tokens,
                  .transpose_b = true,
                  .d = gradients.dw.data,
                  .d_stride = weight.cols,
                  .c = gradients.dw.data,
                  .c_stride = weight.cols,
                  .beta = 1,
                  .a_fp8 = fp8_input(x),
                  .b_fp8 = fp8_input(dz)});
  }
}

}  // namespace turbogr::ops::kernels
