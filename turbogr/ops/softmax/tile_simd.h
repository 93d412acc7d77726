// The small matrix products of losses and retrieval, and the loops over a row of scores that
// follow them; one table per instruction set. Every score is one chain of multiply-adds over the
// depth in order, wherever it falls in a tile, so equal rows always score equal bits.
#pragma once

#include <cstdint>

#include "turbogr/core/simd_level.h"

namespace turbogr {

// c(m, n) (+)= sum over k of a(m, k) * b(k, n). Columns are a multiple of 16; b and c are dense
// along them.
struct TileProduct {
  const float* a;
  std::int64_t a_row, a_depth;  // strides of m and k
  const float* b;
  std::int64_t b_depth;  // stride of k
  float* c;
  std::int64_t c_row;  // stride of m
  std::int64_t rows, cols, depth;
  bool accumulate;
};

// What turns a row of raw scores into logits of negatives. `count` is a multiple of 16; a
// correction of infinity takes a column out.
struct LogitRow {
  float* scores;
  const float* correction;
  const std::int32_t* candidates;
  std::int32_t positive;  // columns whose candidate this is are masked
  std::int64_t count;
};

struct TileTable {
  void (*product)(const TileProduct&);
  // Adds the row to a running log-sum-exp: sum * e^max.
  void (*add_exp)(const LogitRow&, float* max, float* sum);
  // scores = weight * e^(logit - log_sum_exp), zero where masked
  void (*softmax_gradient)(const LogitRow&, float log_sum_exp, float weight);
  bool (*all_finite)(const float* x, std::int64_t count);
  // Writes the columns with x > threshold, ascending; returns how many.
  std::int64_t (*above)(const float* x, std::int64_t count, float threshold, std::int32_t* columns);
  std::int64_t (*count_above)(const float* x, std::int64_t count, float threshold);
  float (*chain_dot)(const float* x, const float* y, std::int64_t width);  // a product's own bits
};

TGR_SIMD_TABLES(TileTable, tile_table)

}  // namespace turbogr
