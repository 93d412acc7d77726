#include "turbogr/ops/dense/linear_plain.h"

#include <cstring>

namespace turbogr::ops {
namespace {

float element(DType dtype, const void* data, std::int64_t index) {
  return dtype == DType::kBf16 ? static_cast<float>(static_cast<const bf16*>(data)[index])
                               : static_cast<const float*>(data)[index];
}

// y[0, count) += factor * x[0, count): the compiler makes vectors of it.
void add_scaled(float factor, const float* x, std::int64_t count, float* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] += factor * x[i];
}

}  // namespace

void PackedProduct::pack(std::int64_t tile, const void* b, std::byte* packed, std::byte*) const {
  float* target = reinterpret_cast<float*>(packed) + tile * kTileCols * k_;
  const std::int64_t cols = tile_cols(tile);
  for (std::int64_t i = 0; i < k_; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      target[i * cols + j] =
          element(stored_, b, i * row_stride_ + (tile * kTileCols + j) * col_stride_);
    }
  }
}

void PackedProduct::run(std::int64_t tile, std::int64_t rows, const void* a,
                        const std::byte* packed, float* c, std::byte*) const {
  const float* b = reinterpret_cast<const float*>(packed) + tile * kTileCols * k_;
  const std::int64_t cols = tile_cols(tile);
  std::memset(c, 0, static_cast<std::size_t>(rows * cols) * sizeof(float));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < k_; ++i) {
      add_scaled(element(compute_, a, row * k_ + i), b + i * cols, cols, c + row * cols);
    }
  }
}

void GradientProduct::run(std::int64_t tile, std::int64_t rows, const void* a, const void* b,
                          float* c, std::byte*) const {
  float widened[1024];
  const std::int64_t end = std::min(k_, (tile + 1) * kTile);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t first = 0; first < n_; first += 1024) {
      const std::int64_t count = std::min<std::int64_t>(1024, n_ - first);
      for (std::int64_t j = 0; j < count; ++j) {
        widened[j] = element(compute_, b, row * n_ + first + j);
      }
      for (std::int64_t i = tile * kTile; i < end; ++i) {
        add_scaled(element(compute_, a, row * k_ + i), widened, count, c + i * n_ + first);
      }
    }
  }
}

}  // namespace turbogr::ops
