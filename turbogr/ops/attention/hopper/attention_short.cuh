// Sequences of at most kPackRows tokens. Each would fill a small part of a tile of its own, so
// neighbours share one: a pack is a run of short sequences that lie side by side in memory, at most
// kPackRows rows in all. Packs have kernels of their own, in which everything of a pack stays on
// chip: one pass, no sums in memory.
#pragma once

#include "turbogr/ops/attention/hopper/attention_args.cuh"

namespace turbogr::cuda {

struct alignas(16) AttentionPack {
  int first_row;
  int rows;
  // Its sequences, empty ones among them.
  int first_sequence;
  int end_sequence;
  std::uint64_t starts;  // bit i: a sequence begins with row i
};

// No pack goes past a chunk of so many sequences, which has a block of its own in the plan.
inline constexpr int kPackChunk = 256;

// No batch has more. In a chunk, a pack and the pack or long sequence behind it have more than
// kPackRows tokens together, or they would be one pack.
constexpr std::size_t most_packs(std::size_t tokens, std::size_t batch) {
  return tokens / (kPackRows / 2) + (batch + kPackChunk - 1) / kPackChunk;
}

struct PackPlanArgs {
  const std::int64_t* offsets;
  int batch;
  bool longer_allowed;  // else a longer sequence is an error
  int* num_packs;       // 0 before
  AttentionPack* packs;
};
void launch_packs(const PackPlanArgs& args, cudaStream_t stream);

// bf16 rows of all tokens; strides in elements.
struct HeadRows {
  const __nv_bfloat16* data;
  std::int64_t stride;
  std::int64_t head_stride;

  __device__ __forceinline__ const __nv_bfloat16* at(std::int64_t row, int head) const {
    return data + row * stride + head * head_stride;
  }
};
struct OutputRows {
  __nv_bfloat16* data;
  std::int64_t stride;
  std::int64_t head_stride;

  __device__ __forceinline__ __nv_bfloat16* at(std::int64_t row, int head) const {
    return data + row * stride + head * head_stride;
  }
};

struct ShortArgs {
  const AttentionPack* packs;
  const int* num_packs;
  const std::int64_t* offsets;
  BiasArgs bias;  // its exact times alone are used
  float half_alpha;
  float output_scale;  // of out and dv
  float score_scale;   // of dq and dk, whose sums are twice too large (silu_parts)
  int heads;
  int query_width;
  int value_width;
  HeadRows q, k, v;
  OutputRows out;
  // Backward.
  HeadRows dout;
  HeadRows q_before;  // data null: there are none
  OutputRows dq, dk, dv;
};

// `width`: the head width that the kernels are made for, 32, 64, 128 or 256.
void launch_short_forward(const ShortArgs& args, int width, cudaStream_t stream);
void launch_short_backward(const ShortArgs& args, int width, cudaStream_t stream);

}  // namespace turbogr::cuda
