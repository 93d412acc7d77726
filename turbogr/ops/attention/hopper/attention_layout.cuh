// What an HSTU call needs and where it lies: which kernels serve it, how much there can be of
// everything, the parts of its workspace.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "turbogr/ops/attention/hopper/attention.h"
#include "turbogr/ops/attention/hopper/attention_args.cuh"

namespace turbogr::cuda {

// The kernels of one head width, without the width in their type.
struct KernelSet {
  int width;
  ForwardShape forward_shape;
  BackwardShape backward_shape;
  void (*forward)(const AttentionArgs&, bool, cudaStream_t);
  void (*backward)(const AttentionArgs&, bool, cudaStream_t);
  void (*dq_rows)(const AttentionArgs&, cudaStream_t);
  void (*key_gradients)(const AttentionArgs&, bool, cudaStream_t);
  void (*query_gradients)(const AttentionArgs&, bool, cudaStream_t);
};

KernelSet pick_kernels(const AttentionParams& p);

// Whether the kernels read a bias for each pair of tokens.
bool has_pairs(const AttentionParams& p);
// As attention_bands.h counts them; no units without pairs.
std::int64_t most_long(const AttentionParams& p);
std::int64_t most_units(const AttentionParams& p);
// The bands of its pairs: one where it has none.
PairBands bands_of(const AttentionParams& p);

// Two each that hand out work, of the forward pass, the backward pass and the gradients of tables;
// then packs; then the items before which bands end, of the forward and of the backward pass.
enum AttentionCounter : std::size_t {
  kNextForward = 0,
  kNextBackward = 2,
  kNextWalk = 4,
  kNumPacks = 6,
  kBandBounds = 7,
};

// Where one pass finds its bands; `areas` where there are several.
struct BandLayout {
  PairBand kind;
  std::size_t bounds, areas, ranges;
};

// Where things lie in the workspace; the plan first, last what must be zero before a backward call:
// from pair_gradients on if gradients of tables are wanted (from `largest` on where each of several
// bands zeroes its own), else from dq_sums on.
struct AttentionLayout {
  std::size_t bytes = 0;
  std::size_t counters, packs, forward_items, backward_items, dq_tiles;
  std::size_t long_offsets, long_sequences;
  std::size_t usable, key_times, query_times, pair_bias;
  std::size_t pair_gradients, largest, position_sums, time_sums, dq_sums;
  std::size_t num_counters, num_dq_tiles, dq_bytes;
  PairBands bands;
  BandLayout forward_bands, backward_bands;

  std::size_t take(std::size_t size) {
    const std::size_t at = bytes;
    bytes += (size + 255) / 256 * 256;
    return at;
  }
  AttentionLayout(const AttentionParams& p, const KernelSet& kernels, bool backward);
};

template <class T>
T* at(const AttentionParams& p, std::size_t offset) {
  return reinterpret_cast<T*>(static_cast<char*>(p.workspace) + offset);
}

// Tables, masks and, where gradients of tables are wanted, the sums of those.
BiasArgs bias_args(const AttentionParams& p, const AttentionLayout& layout);

}  // namespace turbogr::cuda
