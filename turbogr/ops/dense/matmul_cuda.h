// Products on the GPU through cuBLASLt. The algorithm for a shape is chosen by timing the library's
// candidates once, in the first call, under load, and kept; numbers of rows in the same eighth of a
// power of two share it, so that jagged batches of about one size stay warm.
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"

namespace turbogr::ops {

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
};

// Sums in f32 (f64 for f64). Takes matmul_workspace_bytes() of the workspace.
void matmul(Cuda cuda, const Matmul& product);
std::size_t matmul_workspace_bytes();

}  // namespace turbogr::ops
