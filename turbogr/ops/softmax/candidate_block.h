// A block of candidate items ready for tile products: their rows scaled to f32, once by row and
// once transposed in panels. Borrowed scratch, refilled block by block, so that no matrix of all
// scores ever exists. For the CPU kernels of f32 and bf16.
//
// D width, padded to a multiple of 16 with zeros.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/rows/row_simd.h"
#include "turbogr/ops/softmax/tile_simd.h"

namespace turbogr::ops {

inline constexpr std::int64_t kPanel = 64;             // columns of a transposed panel
inline constexpr std::int64_t kBlockCandidates = 256;  // a tile of scores stays in L2
inline constexpr std::int64_t kTileRows = 48;

inline std::int64_t padded_width(std::int64_t width) { return (width + 15) / 16 * 16; }

// y = x * scale in f32, zeros up to the padded width.
template <class T>
void widen_padded(SimdLevel simd, const T* x, float scale, std::int64_t width, float* y) {
  row_kernels<T>(simd).widen(x, scale, width, y);
  std::fill(y + width, y + padded_width(width), 0.0f);
}

struct CandidateBlock {
  std::int64_t width = 0;
  std::int64_t count = 0;   // candidates in it
  float* rows = nullptr;    // [256, padded width]
  float* panels = nullptr;  // [4, width, 64]

  static std::size_t workspace_bytes(std::int64_t width) {
    return workspace_bytes_of<float>(kBlockCandidates * padded_width(width)) +
           workspace_bytes_of<float>(kBlockCandidates * width);
  }
  CandidateBlock(WorkspaceScope& scratch, std::int64_t width_in)
      : width(width_in),
        rows(scratch.take<float>(kBlockCandidates * padded_width(width)).data),
        panels(scratch.take<float>(kBlockCandidates * width).data) {}

  std::int64_t padded_count() const { return (count + 15) / 16 * 16; }

  // Candidate j is items.row(row_of(j)) * scale_of(j).
  template <class T, class RowOf, class ScaleOf>
  void fill(Cpu cpu, Rows<const T> items, std::int64_t count_in, RowOf row_of, ScaleOf scale_of) {
    fill_with(cpu, count_in, [&](std::int64_t j, float* row, int) {
      widen_padded<T>(cpu.simd, items.row(row_of(j)), scale_of(j), width, row);
    });
  }
  // Candidate j is what write(j, row, worker) puts there, with zeros up to the padded width.
  template <class Write>
  void fill_with(Cpu cpu, std::int64_t count_in, Write&& write) {
    constexpr std::int64_t kGroup = 16;
    count = count_in;
    const std::int64_t stride = padded_width(width);
    parallel_for(cpu.pool, padded_count() / kGroup, [&](std::int64_t group, int worker) {
      const std::int64_t begin = group * kGroup;
      for (std::int64_t j = begin; j < begin + kGroup; ++j) {
        if (j < count) {
          write(j, rows + j * stride, worker);
        } else {
          std::fill(rows + j * stride, rows + (j + 1) * stride, 0.0f);
        }
      }
      float* panel = panels + begin / kPanel * kPanel * width + begin % kPanel;
      const float* from = rows + begin * stride;
      for (std::int64_t k = 0; k < width; ++k) {
        for (std::int64_t j = 0; j < kGroup; ++j) panel[k * kPanel + j] = from[j * stride + k];
      }
    });
  }

  // scores [num_rows, kBlockCandidates] of `queries` [num_rows, padded width] against the block;
  // columns past `count` are zero up to padded_count().
  void score(SimdLevel simd, const float* queries, std::int64_t num_rows, float* scores) const {
    for (std::int64_t begin = 0; begin < padded_count(); begin += kPanel) {
      tile_table(simd).product({.a = queries,
                                .a_row = padded_width(width),
                                .a_depth = 1,
                                .b = panels + begin * width,
                                .b_depth = kPanel,
                                .c = scores + begin,
                                .c_row = kBlockCandidates,
                                .rows = num_rows,
                                .cols = std::min(kPanel, padded_count() - begin),
                                .depth = width,
                                .accumulate = false});
    }
  }
};

}  // namespace turbogr::ops
