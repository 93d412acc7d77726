#include "turbogr/train/roof.h"

#include <algorithm>

#include "turbogr/core/philox.h"
#include "turbogr/core/trace.h"
#include "turbogr/ops/linear.h"

namespace turbogr::train {
namespace {

template <class T>
Tensor random_matrix(std::int64_t rows, std::int64_t cols) {
  Tensor matrix(dtype_of<T>(), {rows, cols});
  PhiloxStream random(1);
  for (std::int64_t i = 0; i < matrix.size(); ++i) {
    reinterpret_cast<T*>(matrix.data())[i] = convert<T>(static_cast<float>(random.uniform() - 0.5));
  }
  return matrix;
}

}  // namespace

template <class T>
double measure_roof_tflops(const Context& ctx) {
  constexpr std::int64_t kRows = 2048;
  constexpr std::int64_t kWidth = 1024;
  const Tensor x = random_matrix<T>(kRows, kWidth);
  const Tensor w = random_matrix<T>(kWidth, kWidth);
  Tensor y(dtype_of<T>(), {kRows, kWidth});
  ops::PackedWeight<T> packed(ctx, kWidth, kWidth);
  ctx.workspace().reserve(ops::linear_workspace_bytes<T>(ctx, packed));
  packed.pack(ctx, w.view<T, 2>());
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const std::int64_t begin = Trace::now_ns();
    ops::linear<T>(ctx, x.view<T, 2>(), packed, {}, y.view<T, 2>());
    const auto ns = static_cast<double>(Trace::now_ns() - begin);
    best = std::max(best, 2e-3 * kRows * kWidth * kWidth / ns);
  }
  return best;
}

template double measure_roof_tflops<float>(const Context& ctx);
template double measure_roof_tflops<bf16>(const Context& ctx);

}  // namespace turbogr::train
