// Batched products through oneDNN with all threads of the library itself: what the padded baseline
// and the peak are made of.
#pragma once

#include <cstdint>
#include <memory>

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"

namespace turbogr::bench {

struct GemmShape {
  std::int64_t batch = 1;
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false;   // a is stored [batch, k, m]
  bool transpose_b = false;   // b is stored [batch, n, k]
  DType dtype = DType::kF32;  // of a and b
  DType out = DType::kF32;
};

// c[i] = op(a[i]) * op(b[i]) for every i of the batch; dense row-major. Where oneDNN has no bf16
// products (below AVX-512) the operands are widened to f32 first, as anybody would have to.
class Gemm {
 public:
  Gemm(const GemmShape& shape, const Context& ctx);
  ~Gemm();
  Gemm(Gemm&&) noexcept;
  void run(const void* a, const void* b, void* c) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace turbogr::bench
