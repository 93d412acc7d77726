// The vectorised inner part of attention_cpu.cc, one table per instruction set: a call of the table
// does one work item, from packing to writing its share of the result.
//
// Work is cut into tiles of up to 64 keys x 64 queries. A tile is stored key by key, queries in
// vector lanes. "Words" are 4 bytes: an f32, or two bf16 that are multiplied in one step where the
// machine can. A product's left side is read word by word (`rows`), its right side by vectors
// (`columns` of queries, or `lines` that run along a head's width).
#pragma once

#include <cstdint>

#include "turbogr/core/dtype.h"
#include "turbogr/core/simd_level.h"

namespace turbogr {

inline constexpr std::int64_t kAttentionTile = 64;
inline constexpr std::int64_t kAttentionTileStride = 80;  // a row and a margin of zeros
inline constexpr std::int64_t kAttentionPad = 16;         // the widest vector, in words
inline constexpr int kAttentionTimeBuckets = 129;

// Keys of a row of a tile whose gap falls into one bucket: bit i is query i of the tile.
struct AttentionTimeRun {
  std::uint64_t queries;
  std::int64_t bucket;
};

// One call. Matrices are of the format the function is for; strides in elements.
struct AttentionArgs {
  const void* q;
  const void* k;
  const void* v;
  const void* dout;  // backward
  void* out;         // forward
  void* dq;
  void* dk;
  void* dv;
  std::int64_t q_stride, k_stride, v_stride, out_stride, dq_stride, dk_stride, dv_stride;
  std::int64_t query_width, value_width;  // of a head
  float alpha;
  float inverse_norm;
  bool separate_maps;     // FuXi: tables are maps of their own; HSTU: they are added to the score
  const float* position;  // null: none
  std::int64_t max_length;
  const float* time;  // null: none
  const std::int64_t* key_times;
  const std::int64_t* query_times;
  const std::uint64_t* time_first_gap;  // ops::TimeBucketTable
  const std::uint8_t* time_first_bucket;
};

// Forward: a block of queries, some heads. Backward: a sequence, some heads.
struct AttentionItem {
  std::int64_t begin;  // first token of the sequence
  std::int64_t length, prefix, history_end, window;
  std::int64_t last_place;  // for the position table queries from here on stand here
  std::int64_t block;       // forward: queries block * 64 and on
  std::int64_t first_head, heads;
  float* dposition;  // [heads][2 * length], 2 * length - 1 of them by query - key + length - 1, or
                     // null; overwritten
  float* dtime;      // [heads][129], or null; overwritten
};

// A worker's memory; attention_cpu.cc lays it out. Sizes in words; w(d) is d rounded up to a
// vector.
struct AttentionScratch {
  float* q_columns;     // forward [heads][dq][64]; backward [heads][blocks][dq][64]
  float* q_lines;       // backward [heads][blocks * 64][w(dq)]
  float* dout_columns;  // backward [heads][maps][blocks][dv][64]
  float* dout_lines;    // backward [heads][maps][blocks * 64][w(dv)]
  float* sum;           // forward [heads][maps][64][w(dv)]; backward dq [heads][blocks * 64][w(dq)]
  float* key_rows;      // forward [64][w(dq)], backward [heads][64][w(dq)]
  float* key_lines;     // backward [heads][64][w(dq)]
  float* value_rows;    // backward [heads][64][w(dv)]
  float* value_lines;   // forward [64][w(dv)]
  float* dkey;          // backward [heads][64][w(dq)]
  float* dvalue;        // backward [heads][64][w(dv)]
  float* score;         // a tile with a margin before it
  float* dweight;       // another, backward
  float* weight_words;  // [64][64] the tile as bf16 pairs, or unused
  float* dscore_words;  // [64][64]
  float* dscore_pairs;  // [64][64]
  float* bias;          // [64][64]
  float* time_map;      // [64][64]
  float* map_words;     // [64][64]
  float* time_map_words;   // [64][64]
  float* time_bins;        // backward [heads][129][16]
  AttentionTimeRun* runs;  // [64 * 64]
};

struct AttentionTable {
  void (*forward_f32)(const AttentionArgs&, const AttentionItem&, const AttentionScratch&);
  void (*forward_bf16)(const AttentionArgs&, const AttentionItem&, const AttentionScratch&);
  void (*backward_f32)(const AttentionArgs&, const AttentionItem&, const AttentionScratch&);
  void (*backward_bf16)(const AttentionArgs&, const AttentionItem&, const AttentionScratch&);
};

TGR_SIMD_TABLES(AttentionTable, attention_table)

}  // namespace turbogr
