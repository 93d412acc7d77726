#include <algorithm>
#include <cstring>

#include "turbogr/cuda/check.cuh"
#include "turbogr/ops/attention/hopper/attention.h"
#include "turbogr/ops/attention/hopper/attention_layout.cuh"
#include "turbogr/ops/attention/hopper/attention_pairs.cuh"
#include "turbogr/ops/attention/hopper/attention_plan.cuh"
#include "turbogr/ops/attention/hopper/attention_short_calls.cuh"
#include "turbogr/ops/attention/hopper/head_rows.cuh"

namespace turbogr::cuda {
namespace {

// The backward kernel counts them in pieces of 16 bytes, in 32 bits.
constexpr std::size_t kMostDqBytes = std::size_t{16} << 32;

void check_rows(const char* name, const void* data, std::int64_t stride, int width) {
  check_head_rows("attention", name, data, stride, width);
}

// Rows of the batch in tiles of `box_rows` rows and one panel of one head.
CUtensorMap tile_map(const char* name, const AttentionParams& p, const void* data,
                     std::int64_t stride, int width, int tile_width, int box_rows,
                     std::int64_t head_stride = 0) {
  return head_rows_map("attention", name, data,
                       {p.tokens, p.heads, width, stride, head_stride != 0 ? head_stride : width},
                       std::min(tile_width, 64), box_rows);
}

void check_workspace(const AttentionParams& p, std::size_t needed) {
  TGR_CHECK(p.workspace_bytes >= needed, "attention: workspace of ", p.workspace_bytes,
            " bytes, needs ", needed);
}

// Whether the bias of all pairs is, or is to be, where the caller said.
bool keeps_bias(const AttentionParams& p, const AttentionLayout& layout) {
  return p.pair_bias != nullptr && layout.bands.count == 1;
}

AttentionArgs common_args(const AttentionParams& p, const AttentionLayout& layout) {
  AttentionArgs args;
  std::memset(&args, 0, sizeof(args));
  if (has_pairs(p)) {
    args.pairs.bias =
        keeps_bias(p, layout) ? static_cast<char*>(p.pair_bias) : at<char>(p, layout.pair_bias);
  }
  args.dq_tiles = at<AttentionItem>(p, layout.dq_tiles);
  args.num_dq_tiles = static_cast<int>(layout.num_dq_tiles);
  args.half_alpha = static_cast<float>(0.5 * p.alpha);
  args.output_scale = static_cast<float>(1 / p.norm_length);
  args.score_scale = static_cast<float>(0.5 * p.alpha / p.norm_length);
  args.heads = p.heads;
  args.query_width = p.query_width;
  args.value_width = p.value_width;
  return args;
}

PairTiles pair_tiles(const AttentionParams& p, const AttentionLayout& layout,
                     const AttentionArgs& args) {
  return {args.dq_tiles, args.num_dq_tiles, at<std::int64_t>(p, layout.long_offsets),
          static_cast<int>(most_long(p))};
}

// Tiles of rows for the kernels that take them in these sizes.
void set_maps(const AttentionParams& p, int width, int query_rows, int key_rows,
              AttentionArgs& args) {
  args.q_map = tile_map("q", p, p.q, p.q_stride, p.query_width, width, query_rows);
  args.k_map = tile_map("k", p, p.k, p.k_stride, p.query_width, width, key_rows);
  args.v_map = tile_map("v", p, p.v, p.v_stride, p.value_width, width, key_rows);
}
CUtensorMap dout_map(const AttentionParams& p, int width, int query_rows) {
  return tile_map("dout", p, p.dout, p.dout_stride, p.value_width, width, query_rows,
                  p.dout_head_stride);
}

void use_forward_items(const AttentionParams& p, const AttentionLayout& layout,
                       AttentionArgs& args) {
  args.items = at<AttentionItem>(p, layout.forward_items);
  args.next_item = at<int>(p, layout.counters) + kNextForward;
}
void use_backward_items(const AttentionParams& p, const AttentionLayout& layout,
                        AttentionArgs& args) {
  args.items = at<AttentionItem>(p, layout.backward_items);
  args.next_item = at<int>(p, layout.counters) + kNextBackward;
}

// What is done to the pairs of a band beside its attention kernel.
struct BandSteps {
  bool bias;       // made before
  bool gradients;  // summed after
};

// One band of a pass after the other: `kernel` takes its items.
template <class Kernel>
void for_each_band(const AttentionParams& p, const AttentionLayout& layout,
                   const BandLayout& places, const BiasArgs& bias, const BandSteps& steps,
                   AttentionArgs& args, const Kernel& kernel) {
  const auto stream = static_cast<cudaStream_t>(p.stream);
  const PairTiles tiles = pair_tiles(p, layout, args);
  const std::int64_t longs = most_long(p);
  for (int band = 0; band < layout.bands.count; ++band) {
    args.item_bounds = at<int>(p, places.bounds) + band;
    args.pairs.ranges = at<PairRange>(p, places.ranges) + band * longs;
    args.pairs.band = places.kind;
    if (steps.bias) launch_pair_bias(args.pairs, bias, tiles, stream);
    if (steps.gradients && layout.bands.count > 1) {
      launch_zero_band(args.pairs.gradients, args.item_bounds, at<int>(p, places.areas), p.heads,
                       stream);
    }
    kernel();
    if (steps.gradients) {
      launch_table_gradients(args.pairs, bias, tiles, p.heads,
                             at<int>(p, layout.counters) + kNextWalk, stream);
    }
  }
}

void long_backward(const AttentionParams& p, const AttentionLayout& layout,
                   const KernelSet& kernels, const BiasArgs& bias, bool gradients) {
  const auto stream = static_cast<cudaStream_t>(p.stream);
  AttentionArgs args = common_args(p, layout);
  const BackwardShape shape = kernels.backward_shape;
  set_maps(p, kernels.width, shape.query_rows, shape.key_rows, args);
  args.dout_map = dout_map(p, kernels.width, shape.query_rows);
  check_rows("dq", p.dq, p.dq_stride, p.query_width);
  check_rows("dk", p.dk, p.dk_stride, p.query_width);
  check_rows("dv", p.dv, p.dv_stride, p.value_width);
  use_backward_items(p, layout, args);
  args.dk = p.dk;
  args.dv = p.dv;
  args.dk_stride = p.dk_stride;
  args.dv_stride = p.dv_stride;
  args.dq_sums = at<float>(p, layout.dq_sums);
  args.dq = p.dq;
  args.dq_stride = p.dq_stride;
  if (p.q_before != nullptr) {
    check_rows("q before SiLU", p.q_before, p.q_before_stride, p.query_width);
    args.q_before = {static_cast<const __nv_bfloat16*>(p.q_before), p.q_before_stride};
  }
  if (gradients) {
    args.pairs.gradients = at<char>(p, layout.pair_gradients);
    if (p.deterministic) args.pairs.largest = at<unsigned>(p, layout.largest);
  }
  const bool pairs = has_pairs(p);
  const bool make_bias = pairs && !keeps_bias(p, layout);
  if (!p.deterministic) {
    for_each_band(p, layout, layout.backward_bands, bias, {make_bias, gradients}, args,
                  [&] { kernels.backward(args, pairs, stream); });
    kernels.dq_rows(args, stream);
    return;
  }
  for_each_band(p, layout, layout.backward_bands, bias, {make_bias, false}, args,
                [&] { kernels.key_gradients(args, pairs, stream); });
  const int query_rows = kernels.forward_shape.query_rows;
  set_maps(p, kernels.width, query_rows, kQueryGradientKeys, args);
  args.dout_map = dout_map(p, kernels.width, query_rows);
  use_forward_items(p, layout, args);
  // A band of queries has other pairs than one of keys.
  for_each_band(p, layout, layout.forward_bands, bias,
                {make_bias && layout.bands.count > 1, gradients}, args,
                [&] { kernels.query_gradients(args, pairs, stream); });
}

PassPlanArgs pass_plan(const AttentionParams& p, int rows, int slots, std::size_t items,
                       const BandLayout& bands, const AttentionLayout& layout) {
  PassPlanArgs pass{};
  pass.rows = rows;
  pass.slots = slots;
  pass.items = at<AttentionItem>(p, items);
  pass.bounds = at<int>(p, bands.bounds);
  if (has_pairs(p)) pass.ranges = at<PairRange>(p, bands.ranges);
  if (layout.bands.count > 1) pass.areas = at<int>(p, bands.areas);
  return pass;
}

int multiprocessors() {
  int device = 0;
  int count = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
  return count;
}

}  // namespace

std::size_t attention_forward_workspace_bytes(const AttentionParams& params) {
  return AttentionLayout(params, pick_kernels(params), false).bytes;
}
std::size_t attention_backward_workspace_bytes(const AttentionParams& params) {
  return AttentionLayout(params, pick_kernels(params), true).bytes;
}

std::size_t attention_pair_bias_bytes(const AttentionParams& params) {
  if (bands_of(params).count > 1) return 0;
  return static_cast<std::size_t>(most_units(params)) * kUnitBytes;
}

void plan_attention(const AttentionParams& p) {
  const KernelSet kernels = pick_kernels(p);
  const AttentionLayout layout(p, kernels, false);
  check_workspace(p, layout.bytes);
  const auto stream = static_cast<cudaStream_t>(p.stream);
  int* counters = at<int>(p, layout.counters);
  check(cudaMemsetAsync(counters, 0, layout.num_counters * sizeof(int), stream), "cudaMemsetAsync");
  PlanArgs args{};
  args.offsets = p.offsets;
  args.tokens = p.tokens;
  args.batch = p.batch;
  args.most_long = static_cast<int>(most_long(p));
  args.heads = p.heads;
  args.bands = layout.bands;
  const int processors = multiprocessors();
  const ForwardShape& forward = kernels.forward_shape;
  args.forward = pass_plan(p, forward.query_rows, processors * forward.blocks, layout.forward_items,
                           layout.forward_bands, layout);
  args.backward = pass_plan(p, kernels.backward_shape.key_rows, processors, layout.backward_items,
                            layout.backward_bands, layout);
  args.dq_tiles = at<AttentionItem>(p, layout.dq_tiles);
  args.num_dq_tiles = static_cast<int>(layout.num_dq_tiles);
  args.long_offsets = at<std::int64_t>(p, layout.long_offsets);
  args.long_sequences = at<int>(p, layout.long_sequences);
  args.pair_units = most_units(p);
  args.key_times = p.key_times;
  args.query_times = p.query_times;
  args.usable = at<int>(p, layout.usable);
  args.relative_key_times = at<std::uint32_t>(p, layout.key_times);
  args.relative_query_times = at<std::uint32_t>(p, layout.query_times);
  args.num_packs = counters + kNumPacks;
  args.packs = at<AttentionPack>(p, layout.packs);
  launch_plan(args, stream);
}

void attention_forward(const AttentionParams& p) {
  if (p.tokens == 0) return;
  const KernelSet kernels = pick_kernels(p);
  const AttentionLayout layout(p, kernels, false);
  check_workspace(p, layout.bytes);
  short_forward(p, layout, kernels.width);
  if (most_long(p) == 0) return;
  AttentionArgs args = common_args(p, layout);
  const int width = kernels.width;
  set_maps(p, width, kernels.forward_shape.query_rows, kernels.forward_shape.key_rows, args);
  check_rows("out", p.out, p.out_stride, p.value_width);
  use_forward_items(p, layout, args);
  args.out = p.out;
  args.out_stride = p.out_stride;
  if (p.out_head_stride != 0 && p.out_head_stride != p.value_width) {
    TGR_CHECK(p.value_width == width && p.out_head_stride > width && p.out_head_stride % 8 == 0,
              "attention: out_head_stride ", p.out_head_stride, " with a value width of ",
              p.value_width, "; it needs the kernels' own width, here ", width);
    // A tile is then as wide as the head, so that this only says where the next head begins.
    args.value_width = static_cast<int>(p.out_head_stride);
  }
  const auto stream = static_cast<cudaStream_t>(p.stream);
  const bool pairs = has_pairs(p);
  const bool make_bias = pairs && !(keeps_bias(p, layout) && p.pair_bias_ready);
  for_each_band(p, layout, layout.forward_bands, bias_args(p, layout), {make_bias, false}, args,
                [&] { kernels.forward(args, pairs, stream); });
}

void attention_backward(const AttentionParams& p) {
  if (p.tokens == 0) return;
  const KernelSet kernels = pick_kernels(p);
  const AttentionLayout layout(p, kernels, true);
  check_workspace(p, layout.bytes);
  TGR_CHECK(layout.dq_bytes <= kMostDqBytes, "attention: sums of dq of ", layout.num_dq_tiles,
            " tiles of 64 queries x ", p.heads, " heads x ", kernels.width, " take ",
            layout.dq_bytes, " bytes, more than the ", kMostDqBytes,
            " that the kernels can count; give fewer sequences at once");
  const auto stream = static_cast<cudaStream_t>(p.stream);
  const BiasArgs bias = bias_args(p, layout);
  const bool gradients = bias.position_sums.words != nullptr || bias.time_sums.words != nullptr;
  const std::size_t zeros_at = !gradients               ? layout.dq_sums
                               : layout.bands.count > 1 ? layout.largest
                                                        : layout.pair_gradients;
  launch_zero(at<char>(p, zeros_at), (layout.dq_sums + layout.dq_bytes - zeros_at) / 16, stream);
  short_backward(p, layout, kernels.width);
  if (most_long(p) > 0) long_backward(p, layout, kernels, bias, gradients);
  // The kernels' score gradients are twice too large (silu_parts).
  const auto scale = static_cast<float>(0.5 / p.norm_length);
  if (bias.position_sums.words != nullptr) {
    launch_add_exact_sums(bias.position_sums, scale, p.dposition + p.position_length - 1, -1,
                          stream);
  }
  if (bias.time_sums.words != nullptr) {
    launch_add_exact_sums(bias.time_sums, scale, p.dtime, 1, stream);
  }
}

}  // namespace turbogr::cuda
