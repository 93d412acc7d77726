// The order of work for one batch, made on the device from the offsets. Sequences of up to
// kPackRows tokens are packed. Of the others the longest come first, and in a sequence from the
// dearest tile down, all heads of a tile together. So the heads read a bias tile from the cache at
// about the same time, and nearby tiles the same keys (or queries).
#pragma once

#include "turbogr/ops/attention/hopper/attention_short.cuh"

namespace turbogr::cuda {

// One pass: its tiles, in items of a head each.
struct PassPlanArgs {
  int rows;   // queries of a forward tile, keys of a backward tile
  int slots;  // items that run at once
  AttentionItem* items;
  int* bounds;  // of the bands: the items before which they end behind a 0; zero before
  // Of each band of pairs, those of each sequence; null: there are no pairs.
  PairRange* ranges;
  int* areas;  // units before each tile of the list; null: all is one band
};

struct PlanArgs {
  const std::int64_t* offsets;
  std::int64_t tokens;
  int batch;
  int most_long;  // no more sequences are longer than kPackRows
  int heads;
  PassPlanArgs forward;
  PassPlanArgs backward;
  PairBands bands;
  AttentionItem* dq_tiles;
  int num_dq_tiles;
  // By number among the long sequences: where each begins, and its place in the batch.
  std::int64_t* long_offsets;
  int* long_sequences;
  std::int64_t pair_units;  // no more are expected; 0: none are used
  // Null where there is no time bias.
  const std::int64_t* key_times;
  const std::int64_t* query_times;
  int* usable;
  std::uint32_t* relative_key_times;
  std::uint32_t* relative_query_times;
  int* num_packs;
  AttentionPack* packs;
};

void launch_plan(const PlanArgs& args, cudaStream_t stream);
// The part of it that cuts lists into bands.
void launch_bands(const PlanArgs& args, cudaStream_t stream);

// Zeroes pieces of 16 bytes.
void launch_zero(void* data, std::size_t pieces, cudaStream_t stream);
// Zeroes the units of a band, given where its bounds begin and the areas of its pass.
void launch_zero_band(void* units, const int* bounds, const int* areas, int heads,
                      cudaStream_t stream);

}  // namespace turbogr::cuda
