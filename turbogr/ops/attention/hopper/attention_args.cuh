// What the attention kernels take and how their tiles are cut: the bridge between the host side
// (attention.cu) and one file of kernels a head width.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "turbogr/ops/attention/hopper/attention_bands.h"
#include "turbogr/ops/attention/hopper/exact_sums.cuh"

namespace turbogr::cuda {

// Rows of a tile of dq sums and of the padded time arrays: the long sequence number b starts at
// padded row kPaddedRows * (offset / kPaddedRows + b), so that no two share a tile.
inline constexpr int kPaddedRows = 64;

// One unit of work. `block` counts tiles of queries (forward, dq) or of keys (backward).
struct alignas(16) AttentionItem {
  int first_row;
  int length;
  int sequence;  // its number among the long ones: short ones are packed (attention_short.cuh)
  std::uint16_t block;
  std::uint16_t head;
};

// Tables and masks, of which the bias of a pair is made.
struct BiasArgs {
  const float* position;  // entry of offset 0: key j of query i has entry j - i; null: none
  int position_length;    // S: offsets from 1 - S up to 0 are there
  const float* time;      // [129]; null: none
  // Padded, relative to the sequence's first key time; to be used where usable[sequence] only.
  const std::uint32_t* key_times;
  const std::uint32_t* query_times;
  const int* usable;  // times are sorted and span less than 2^32
  const std::int64_t* exact_key_times;
  const std::int64_t* exact_query_times;
  std::int64_t window;              // 0: none
  const std::int64_t* num_targets;  // [B]; null: none
  const int* long_sequences;        // the place in the batch of each long sequence
  // Of the tables' gradients, before they are scaled; words null: not wanted.
  ExactSums position_sums;  // by query - key
  ExactSums time_sums;      // by bucket, a copy for some of the blocks each
};

inline constexpr int kTimeSumCopies = 32;

enum class PairBand : std::uint8_t { kAll, kOfQueries, kOfKeys };

// What belongs to pairs of tokens (attention_pairs.cuh), in units of 64 x 64, of one band.
struct PairArgs {
  const PairRange* ranges;  // of each long sequence
  PairBand band;
  char* bias;  // f16: half the bias; null: none
  // Twice the gradients of scores, summed over heads; null: not wanted. bf16, or counts
  // (attention_head_sums.cuh) where there is a `largest`.
  char* gradients;
  // The bits of the largest of them, over heads and keys, of each tile of kPaddedRows queries.
  unsigned* largest;
};

// Rows whose SiLU was the kernel's input; data null: there was none. A gradient times SiLU's
// derivative there is the gradient of these rows.
struct BeforeSilu {
  const __nv_bfloat16* data;
  std::int64_t stride;
};

struct AttentionArgs {
  CUtensorMap q_map;
  CUtensorMap k_map;
  CUtensorMap v_map;
  CUtensorMap dout_map;
  const AttentionItem* items;
  const int* item_bounds;  // of the items to do: the first, and the one they end before
  // [0]: items handed out after the first of each block, [1]: blocks that are done. The last block
  // sets both back to 0.
  int* next_item;
  PairArgs pairs;
  float half_alpha;
  float output_scale;  // of out and dv
  float score_scale;   // of dq and dk, whose sums are twice too large (silu_parts)
  int heads;
  int query_width;
  int value_width;
  void* out;
  void* dk;
  void* dv;
  std::int64_t out_stride;
  std::int64_t dk_stride;
  std::int64_t dv_stride;
  // Tiles of kPaddedRows x D in the order the threads hold them (attention_convert.cuh).
  float* dq_sums;
  const AttentionItem* dq_tiles;  // length 0: no such tile
  int num_dq_tiles;
  void* dq;
  std::int64_t dq_stride;
  BeforeSilu q_before;
};

// How one head width is cut: the host builds tensor maps and plans from it.
struct ForwardShape {
  int query_rows;  // of a tile
  int key_rows;
  int blocks;  // a multiprocessor
};
struct BackwardShape {
  int key_rows;
  int query_rows;
};

// Filled in by attention_<D>.cu for D = 32, 64, 128, 256.
template <int D>
struct AttentionKernels {
  static ForwardShape forward_shape(bool bias);
  static BackwardShape backward_shape();
  static void forward(const AttentionArgs& args, bool bias, cudaStream_t stream);
  // Adds to dq_sums, of which dq_rows makes dq.
  static void backward(const AttentionArgs& args, bool bias, cudaStream_t stream);
  static void dq_rows(const AttentionArgs& args, cudaStream_t stream);
  // The same gradients from two kernels that give the same bits every time: dk and dv, then dq. The
  // first finds what is largest, the second sums gradients of scores; its tiles of queries are
  // those of `forward`, its tiles of keys have kQueryGradientKeys rows.
  static void key_gradients(const AttentionArgs& args, bool bias, cudaStream_t stream);
  static void query_gradients(const AttentionArgs& args, bool bias, cudaStream_t stream);
};

inline constexpr int kQueryGradientKeys = 64;

}  // namespace turbogr::cuda
