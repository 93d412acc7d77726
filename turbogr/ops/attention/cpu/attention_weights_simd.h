// Scores to weights, and back: the elementwise part of a tile, and how a tile becomes the left side
// of a product. A tile is multiplied by keys (`rows`: sums over queries) or by queries (`pairs`:
// sums over keys); in f32 one tile serves both.
#pragma once

#include "turbogr/ops/attention/cpu/attention_tables_simd.h"

namespace turbogr::TGR_SIMD {
namespace {

constexpr std::int64_t kRowWords = kTile / 2;  // a tile's row as bf16

// The left side of a product, by either dimension.
struct LeftSide {
  const float* words;
  std::int64_t row, depth;
};

template <class T>
inline LeftSide by_query(const float* f32_tile, std::int64_t f32_stride, const float* pairs) {
  if constexpr (kPairs<T>) return {pairs, 1, kTile};
  return {f32_tile, 1, f32_stride};
}
template <class T>
inline LeftSide by_key(const float* f32_tile, std::int64_t f32_stride, const float* rows) {
  if constexpr (kPairs<T>) return {rows, kRowWords, 1};
  return {f32_tile, f32_stride, 1};
}

template <bool kMasked>
inline Floats masked(const Tile& tile, std::int64_t r, std::int64_t v, Floats value) {
  if constexpr (!kMasked) return value;
  return choose(lane_bits(tile.seen[r], v), value, Floats{});
}

// How a product over a tile looks when the tile is triangular (query >= key).
enum class Triangle {
  kVectorsFromRow,  // rows are keys, vectors are queries: the tile is the result
  kDepthFromRow,    // rows are keys, the sum is over queries
  kDepthToRow       // rows are queries, the sum is over keys
};

// The product, less what is known to be zero (or, of a result, not to be used), in steps of 16
// rows.
template <class T, Triangle kTriangle, bool kAdd>
inline void multiply_tile(const Tile& tile, const Product& product) {
  if (!tile.triangular) {
    multiply<kPairs<T>, kAdd>(product);
    return;
  }
  for (std::int64_t r = 0; r < product.rows; r += kAttentionPad) {
    Product part = product;
    part.rows = product.rows - r < kAttentionPad ? product.rows - r : kAttentionPad;
    part.a += r * product.a_row;
    part.c += r * product.c_stride;
    if constexpr (kTriangle == Triangle::kVectorsFromRow) {
      part.vectors -= r / kLanes;
      part.b += r;
      part.c += r;
    } else if constexpr (kTriangle == Triangle::kDepthFromRow) {
      const std::int64_t skipped = words_of<T>(r);
      part.depth -= skipped;
      part.a += skipped * product.a_depth;
      part.b += skipped * product.b_stride;
    } else {
      const std::int64_t needed = words_of<T>(r + kAttentionPad);
      part.depth = needed < product.depth ? needed : product.depth;
    }
    multiply<kPairs<T>, kAdd>(part);
  }
}

// ---- forward ----------------------------------------------------------------------------------

// score := weight without its 1 / norm, masked; as pairs of keys where T is multiplied in pairs.
template <class T, bool kBias, bool kMasked>
void weigh(const AttentionArgs& args, const Tile& tile, float* score, const float* bias,
           float* pairs) {
  const Floats alpha = splat(args.alpha);
  const auto weight = [&](std::int64_t r, std::int64_t v) {
    if (kMasked && lane_bits(tile.seen[r], v) == 0) return Floats{};
    Floats x = load(score + r * kStride + v * kLanes) * alpha;
    if constexpr (kBias) x += load(bias + r * kTile + v * kLanes);
    return masked<kMasked>(tile, r, v, x * score_sigmoid<kPairs<T>>(x));
  };
  if constexpr (kPairs<T>) {
    std::int64_t r = 0;
    for (; r + 2 <= tile.keys; r += 2) {
      for (std::int64_t v = 0; v < tile.query_vectors; ++v) {
        store(pairs + r / 2 * kTile + v * kLanes, zip(weight(r, v), weight(r + 1, v)));
      }
    }
    if (r < tile.keys) {
      for (std::int64_t v = 0; v < tile.query_vectors; ++v) {
        store(pairs + r / 2 * kTile + v * kLanes, zip(weight(r, v), Floats{}));
      }
    }
  } else {
    for (std::int64_t r = 0; r < tile.keys; ++r) {
      for (std::int64_t v = 0; v < tile.query_vectors; ++v) {
        store(score + r * kStride + v * kLanes, weight(r, v));
      }
    }
  }
}

template <class T>
void weigh_tile(const AttentionArgs& args, const Tile& tile, float* score, const float* bias,
                float* pairs) {
  if (bias != nullptr) {
    tile.full ? weigh<T, true, false>(args, tile, score, bias, pairs)
              : weigh<T, true, true>(args, tile, score, bias, pairs);
  } else {
    tile.full ? weigh<T, false, false>(args, tile, score, bias, pairs)
              : weigh<T, false, true>(args, tile, score, bias, pairs);
  }
}

// ---- backward ---------------------------------------------------------------------------------

struct BackwardTile {
  float* score;        // scores in; weights out (f32)
  float* dweight;      // gradients of weights in; of scores out, f32, if `keep` or T is f32
  const float* bias;   // or null
  float* weight_rows;  // the rest: bf16 only
  float* dscore_rows;
  float* dscore_pairs;
  float weight_scale;  // for weights that are summed with those of other maps; 1 with a bias
  bool keep;
};

struct WeightAndGradient {
  Floats weight, dscore;
};

template <class T, bool kBias, bool kMasked>
inline WeightAndGradient weigh_vector_back(const AttentionArgs& args, const Tile& tile,
                                           const BackwardTile& t, std::int64_t r, std::int64_t v) {
  if (kMasked && lane_bits(tile.seen[r], v) == 0) return {Floats{}, Floats{}};
  Floats x = load(t.score + r * kStride + v * kLanes) * splat(args.alpha);
  if constexpr (kBias) x += load(t.bias + r * kTile + v * kLanes);
  // The gradients of a bias are f32 sums of these; everything else is rounded to bf16.
  const Floats s = score_sigmoid < kPairs<T> && !kBias > (x);
  const Floats silu_x = x * s;
  const Floats slope = s + silu_x * (1.0f - s);
  const Floats dscore = load(t.dweight + r * kStride + v * kLanes) * slope;
  const Floats weight = kBias ? silu_x : silu_x * splat(t.weight_scale);
  return {masked<kMasked>(tile, r, v, weight), masked<kMasked>(tile, r, v, dscore)};
}

#if defined(__AVX512BF16__)
// Two keys and two vectors of queries at a time: what the conversion to bf16 gives for a key is a
// piece of its row, and two keys' pieces make the pairs.
template <class T, bool kBias, bool kMasked>
void weigh_back_in_pairs(const AttentionArgs& args, const Tile& tile, const BackwardTile& t) {
  // Left to itself gcc calls this and loads every constant anew.
  const auto row = [&](std::int64_t r, std::int64_t v, bool two) __attribute__((always_inline))
                       ->Halves2 {
    const auto a = weigh_vector_back<T, kBias, kMasked>(args, tile, t, r, v);
    WeightAndGradient b = {};
    if (two) b = weigh_vector_back<T, kBias, kMasked>(args, tile, t, r, v + 1);
    const Halves2 dscore = join(a.dscore, b.dscore);
    store(t.weight_rows + r * kRowWords + v * kLanes / 2, (Floats)join(a.weight, b.weight));
    store(t.dscore_rows + r * kRowWords + v * kLanes / 2, (Floats)dscore);
    if (t.keep) {
      store(t.dweight + r * kStride + v * kLanes, a.dscore);
      if (two) store(t.dweight + r * kStride + (v + 1) * kLanes, b.dscore);
    }
    return dscore;
  };
  const auto pair = [&](std::int64_t r, std::int64_t v, Halves2 low, Halves2 high) {
    float* pairs = t.dscore_pairs + r / 2 * kTile + v * kLanes;
    store_pairs(pairs, low, high);
  };
  const std::int64_t whole_keys = tile.keys / 2 * 2;
  const std::int64_t whole_vectors = tile.query_vectors / 2 * 2;
  for (std::int64_t r = 0; r < whole_keys; r += 2) {
    for (std::int64_t v = 0; v < whole_vectors; v += 2) {
      const Halves2 low = row(r, v, true);
      pair(r, v, low, row(r + 1, v, true));
    }
  }
  if (whole_vectors < tile.query_vectors) {
    for (std::int64_t r = 0; r < whole_keys; r += 2) {
      const Halves2 low = row(r, whole_vectors, false);
      pair(r, whole_vectors, low, row(r + 1, whole_vectors, false));
    }
  }
  if (whole_keys < tile.keys) {
    for (std::int64_t v = 0; v < tile.query_vectors; v += 2) {
      pair(whole_keys, v, row(whole_keys, v, v + 1 < tile.query_vectors), Halves2{});
    }
  }
}
#endif

template <class T, bool kBias, bool kMasked>
void weigh_back(const AttentionArgs& args, const Tile& tile, const BackwardTile& t) {
#if defined(__AVX512BF16__)
  if constexpr (kPairs<T>) {
    weigh_back_in_pairs<T, kBias, kMasked>(args, tile, t);
    return;
  }
#endif
  for (std::int64_t r = 0; r < tile.keys; ++r) {
    for (std::int64_t v = 0; v < tile.query_vectors; ++v) {
      const auto [weight, dscore] = weigh_vector_back<T, kBias, kMasked>(args, tile, t, r, v);
      store(t.score + r * kStride + v * kLanes, weight);
      store(t.dweight + r * kStride + v * kLanes, dscore);
    }
  }
}

template <class T>
void weigh_tile_back(const AttentionArgs& args, const Tile& tile, const BackwardTile& t) {
  if (t.bias != nullptr) {
    tile.full ? weigh_back<T, true, false>(args, tile, t)
              : weigh_back<T, true, true>(args, tile, t);
  } else {
    tile.full ? weigh_back<T, false, false>(args, tile, t)
              : weigh_back<T, false, true>(args, tile, t);
  }
}

// ---- maps that are used as they are -----------------------------------------------------------

inline void mask_values(const Tile& tile, float* values, std::int64_t stride) {
  if (tile.full) return;
  for (std::int64_t r = 0; r < tile.keys; ++r) {
    for (std::int64_t v = 0; v < tile.query_vectors; ++v) {
      float* value = values + r * stride + v * kLanes;
      store(value, masked<true>(tile, r, v, load(value)));
    }
  }
}

// A masked f32 map [keys][64] as pairs of keys (forward) or rows (backward); f32 needs neither.
template <class T>
inline void map_pairs(const Tile& tile, const float* map, float* pairs) {
  if constexpr (kPairs<T>) {
    for (std::int64_t r = 0; r < tile.keys; r += 2) {
      for (std::int64_t v = 0; v < tile.query_vectors; ++v) {
        const float* low = map + r * kTile + v * kLanes;
        const Floats high = r + 1 < tile.keys ? load(low + kTile) : Floats{};
        store(pairs + r / 2 * kTile + v * kLanes, zip(load(low), high));
      }
    }
  }
}
template <class T>
inline void map_rows(const Tile& tile, const float* map, float* rows) {
  if constexpr (kPairs<T>) {
    for (std::int64_t r = 0; r < tile.keys; ++r) {
      for (std::int64_t v = 0; v < tile.query_vectors; ++v) {
        store_halves(rows + r * kRowWords, v, load(map + r * kTile + v * kLanes));
      }
    }
  }
}

}  // namespace
}  // namespace turbogr::TGR_SIMD
