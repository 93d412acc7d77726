// The contracts of linear_dnnl.h in plain loops: for builds that must run where oneDNN is missing,
// such as those for GPUs. Right, not fast.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "turbogr/core/dtype.h"

namespace turbogr::ops {

class PackedProduct {
 public:
  static constexpr std::int64_t kTileRows = 128;
  static constexpr std::int64_t kTileCols = 256;

  PackedProduct(DType stored, DType compute, std::int64_t k, std::int64_t n,
                std::int64_t row_stride, std::int64_t col_stride)
      : stored_(stored),
        compute_(compute),
        k_(k),
        n_(n),
        row_stride_(row_stride),
        col_stride_(col_stride) {}

  std::int64_t tiles() const { return (n_ + kTileCols - 1) / kTileCols; }
  std::int64_t tile_cols(std::int64_t tile) const {
    return std::min(kTileCols, n_ - tile * kTileCols);
  }
  // Packed B is f32 whatever was stored.
  std::size_t packed_bytes() const { return static_cast<std::size_t>(k_ * n_) * sizeof(float); }
  std::size_t scratch_bytes() const { return 0; }

  void pack(std::int64_t tile, const void* b, std::byte* packed, std::byte* scratch) const;
  static std::int64_t padded_rows(std::int64_t rows) { return rows; }
  void run(std::int64_t tile, std::int64_t rows, const void* a, const std::byte* packed, float* c,
           std::byte* scratch) const;

 private:
  DType stored_, compute_;
  std::int64_t k_, n_, row_stride_, col_stride_;
};

class GradientProduct {
 public:
  static constexpr std::int64_t kMaxRows = 2048;
  static constexpr std::int64_t kMinRows = 128;

  GradientProduct(DType compute, std::int64_t k, std::int64_t n)
      : compute_(compute), k_(k), n_(n) {}

  std::int64_t tiles() const { return (k_ + kTile - 1) / kTile; }
  std::size_t scratch_bytes() const { return 0; }
  void run(std::int64_t tile, std::int64_t rows, const void* a, const void* b, float* c,
           std::byte* scratch) const;

 private:
  static constexpr std::int64_t kTile = 64;  // rows of C
  DType compute_;
  std::int64_t k_, n_;
};

}  // namespace turbogr::ops
