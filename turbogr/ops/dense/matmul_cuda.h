// Products on the GPU through cuBLASLt. The algorithm for a shape is chosen by timing the library's
// candidates once, in the first call, under load, and kept; numbers of rows in the same eighth of a
// power of two share it, so that jagged batches of about one size stay warm. With
// `cuda.deterministic` it is the library's first guess for the largest of those sizes: the order of
// a sum then depends on shapes, alignment, GPU and library alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"
#include "turbogr/ops/dense/fp8.h"

namespace turbogr::ops {

// Of an operand in eight bits: its format, and where on the device the factor is that makes numbers
// of them. Such products have a stored [m, k] and b [n, k], `in` is kU8.
struct Fp8Input {
  Fp8Format format = Fp8Format::kE4m3;
  const float* inverse = nullptr;  // null: not in eight bits
};

// d [m, n] = op(a) op(b) + beta c + bias, all row-major, strides in elements. op transposes: a is
// stored [k, m], b [n, k].
struct Matmul {
  DType in = DType::kBf16;   // of a, b
  DType out = DType::kBf16;  // of c, d
  std::int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  std::int64_t a_stride = 0;
  bool transpose_a = false;
  const void* b = nullptr;
  std::int64_t b_stride = 0;
  bool transpose_b = false;
  void* d = nullptr;
  std::int64_t d_stride = 0;
  const void* c = nullptr;  // read where beta is not 0; may be d
  std::int64_t c_stride = 0;
  double beta = 0;
  const void* bias = nullptr;  // [n] in the format of d, or null
  Fp8Input a_fp8, b_fp8;
  bool short_sums = false;  // fp8: partial sums of some 14 bits, for products over few numbers
};

// Sums in f32 (f64 for f64). Takes matmul_workspace_bytes() of the workspace; the candidates of a
// product that adds to d are timed where the rest has room for a second d, else none is.
void matmul(Cuda cuda, const Matmul& product);
std::size_t matmul_workspace_bytes();

}  // namespace turbogr::ops
