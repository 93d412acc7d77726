// The three products of a linear layer as prepared oneDNN primitives. Everything is made in the
// constructors and const afterwards, so any number of threads may run it; each call uses the
// calling thread alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "turbogr/core/dtype.h"

namespace turbogr::ops {

// Makes OpenMP, and so oneDNN, use the calling thread alone while it lives.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// A primitive with the descriptions of its operands: two read, one written, and scratch.
struct Prepared {
  dnnl::primitive primitive;
  dnnl::memory::desc first, second, result, scratch;
};

// C [m, n] = A [m, k] B [k, n]: A and C dense, C f32, B packed by column tiles of kTileCols. This
// is the shape oneDNN is fastest at; a strided A or C would send it to another, slower path.
class PackedProduct {
 public:
  static constexpr std::int64_t kTileRows = 128;  // with kTileCols, a tile of C is 1/8 of a 1 MB L2
  static constexpr std::int64_t kTileCols = 256;

  // B's element (i, j) is at i * row_stride + j * col_stride, in format `stored`; packed B and A
  // are in `compute`.
  PackedProduct(DType stored, DType compute, std::int64_t k, std::int64_t n,
                std::int64_t row_stride, std::int64_t col_stride);

  std::int64_t tiles() const { return (n_ + kTileCols - 1) / kTileCols; }
  std::int64_t tile_cols(std::int64_t tile) const { return width_of(tile).cols; }
  std::size_t packed_bytes() const;                             // of all tiles
  std::size_t scratch_bytes() const { return scratch_bytes_; }  // of one call

  void pack(std::int64_t tile, const void* b, std::byte* packed, std::byte* scratch) const;

  // How many rows run() works on when asked for `rows` <= kTileRows: the next of 16, 32, 64, 128. A
  // must have that many and C gets that many.
  static std::int64_t padded_rows(std::int64_t rows);
  void run(std::int64_t tile, std::int64_t rows, const void* a, const std::byte* packed, float* c,
           std::byte* scratch) const;

 private:
  static constexpr int kSizes = 4;  // 16, 32, 64, 128 rows
  struct Width {                    // tiles of one width share their primitives
    std::int64_t cols = 0;
    std::size_t packed_bytes = 0;
    Prepared reorder;  // result: packed; second unused
    std::array<Prepared, kSizes> products;
  };
  const Width& width_of(std::int64_t tile) const {
    return (tile + 1) * kTileCols <= n_ ? widths_.front() : widths_.back();
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::int64_t n_;
  std::int64_t source_step_;   // bytes from one tile of B to the next
  std::vector<Width> widths_;  // full, then the last tile's if narrower
  std::size_t scratch_bytes_ = 0;
};

// C [k, n] += A^T B over rows: A [rows, k], B [rows, n] and C dense, C f32; tile by tile.
class GradientProduct {
 public:
  static constexpr std::int64_t kMaxRows = 2048;  // of one run; longer sums are several
  static constexpr std::int64_t kMinRows = 128;   // shorter ones are padded with zero rows

  GradientProduct(DType compute, std::int64_t k, std::int64_t n);

  std::int64_t tiles() const { return tiles_of(k_, tile_k_) * tiles_of(n_, tile_n_); }
  std::size_t scratch_bytes() const { return scratch_bytes_; }
  // rows: a power of two from kMinRows to kMaxRows.
  void run(std::int64_t tile, std::int64_t rows, const void* a, const void* b, float* c,
           std::byte* scratch) const;

 private:
  static constexpr int kSizes = 5;  // 128, 256, ... 2048 rows
  static std::int64_t tiles_of(std::int64_t size, std::int64_t tile) {
    return (size + tile - 1) / tile;
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::int64_t k_, n_, tile_k_, tile_n_, element_bytes_;
  std::array<std::array<Prepared, kSizes>, 4> shapes_;  // by (short in k) * 2 + (short in n)
  std::size_t scratch_bytes_ = 0;
};

}  // namespace turbogr::ops
