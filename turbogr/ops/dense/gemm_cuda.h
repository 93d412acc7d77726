// Products of row-major matrices on a GPU, by cuBLASLt, for operators that make scores tile by
// tile. Inputs T, output and sums Accum<T>; f32 is not rounded to tf32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

inline constexpr std::int64_t kGemmScratchBytes = 64 << 20;

// c [M, N] = a b + beta c. a is [M, K], or [K, M] when transposed; b [K, N], or [N, K]. The order
// of an element's sum depends on the shapes, strides and alignment alone, not on its place in c.
template <class T>
struct Gemm {
  Rows<const T> a, b;
  bool a_transposed = false;
  bool b_transposed = false;
  Rows<Accum<T>> c;
  double beta = 0;  // 0 or 1
};

// Takes kGemmScratchBytes of the workspace while it runs.
template <class T>
void gemm(Cuda cuda, const Gemm<T>& product);

}  // namespace turbogr::ops
