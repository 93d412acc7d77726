#include <algorithm>
#include <cstring>

#include "turbogr/cuda/check.cuh"
#include "turbogr/ops/attention/hopper/attention.h"
#include "turbogr/ops/attention/hopper/attention_args.cuh"
#include "turbogr/ops/attention/hopper/attention_pairs.cuh"
#include "turbogr/ops/attention/hopper/attention_plan.cuh"
#include "turbogr/ops/attention/hopper/time_buckets.cuh"

namespace turbogr::cuda {
namespace {

// The kernels of one head width, without the width in their type.
struct KernelSet {
  int width;
  ForwardShape forward_shape;
  BackwardShape backward_shape;
  void (*forward)(const AttentionArgs&, bool, cudaStream_t);
  void (*backward)(const AttentionArgs&, bool, cudaStream_t);
  void (*key_gradients)(const AttentionArgs&, bool, cudaStream_t);
  void (*query_gradients)(const AttentionArgs&, bool, cudaStream_t);
};

template <int D>
KernelSet kernel_set(bool bias) {
  using Kernels = AttentionKernels<D>;
  return {D,
          Kernels::forward_shape(bias),
          Kernels::backward_shape(),
          Kernels::forward,
          Kernels::backward,
          Kernels::key_gradients,
          Kernels::query_gradients};
}

bool has_tables(const AttentionParams& p) { return p.position != nullptr || p.time != nullptr; }
// Whether the kernels read a bias for each pair of tokens.
bool has_pairs(const AttentionParams& p) {
  return has_tables(p) || p.window > 0 || p.num_targets != nullptr;
}
// No batch of so many tokens has more sequences that are too long for a pack.
std::int64_t most_long(const AttentionParams& p) {
  if (p.max_length > 0 && p.max_length <= kPackRows) return 0;
  return std::min<std::int64_t>(p.batch, p.tokens / (kPackRows + 1));
}
// Nor more units of long ones, with n tokens and t = ceil(n / 64) tiles a sequence:
// t (t + 1) / 2 <= x (x + 3) / 2 + 1, x = n / 64 <= max_length / 64.
std::int64_t most_units(const AttentionParams& p) {
  if (!has_pairs(p)) return 0;
  TGR_CHECK(p.max_length > 0 || p.tokens == 0,
            "attention: a bias or a mask needs max_length, the longest a sequence can be");
  if (most_long(p) == 0) return 0;
  return p.tokens * (p.max_length + 3 * kUnit) / (2 * kUnit * kUnit) + most_long(p);
}

KernelSet pick_kernels(const AttentionParams& p) {
  const int width = p.query_width > p.value_width ? p.query_width : p.value_width;
  TGR_CHECK(width >= 1 && width <= 256, "attention: head width ", width,
            ", the kernels take 1 to 256");
  const bool bias = has_pairs(p);
  if (width <= 32) return kernel_set<32>(bias);
  if (width <= 64) return kernel_set<64>(bias);
  if (width <= 128) return kernel_set<128>(bias);
  return kernel_set<256>(bias);
}

// No query is further from its key.
std::int64_t position_sums_of(const AttentionParams& p) {
  return std::min(p.position_length, p.max_length > 0 ? p.max_length : p.tokens);
}

// Items of the forward and backward pass; then two each that hand out work, of the forward pass,
// the backward pass and the gradients of tables; then packs.
constexpr std::size_t kCounters = 9;

// The backward kernel counts them in pieces of 16 bytes, in 32 bits.
constexpr std::size_t kMostDqBytes = std::size_t{16} << 32;

// Where things lie in the workspace; the plan first, last what must be zero before a backward call:
// from pair_gradients on if gradients of tables are wanted, else from dq_sums on.
struct Layout {
  std::size_t bytes = 0;
  std::size_t counters, packs, forward_items, backward_items, dq_tiles;
  std::size_t long_offsets, long_sequences;
  std::size_t usable, key_times, query_times, pair_starts, pair_bias;
  std::size_t pair_gradients, largest, position_sums, time_sums, dq_sums;
  std::size_t num_dq_tiles, dq_bytes;

  std::size_t take(std::size_t size) {
    const std::size_t at = bytes;
    bytes += (size + 255) / 256 * 256;
    return at;
  }
  Layout(const AttentionParams& p, const KernelSet& kernels, bool backward) {
    const auto tokens = static_cast<std::size_t>(p.tokens);
    const auto longs = static_cast<std::size_t>(most_long(p));
    const auto heads = static_cast<std::size_t>(p.heads);
    const auto items = [&](int rows) {
      const std::size_t tiles = longs > 0 ? tokens / static_cast<std::size_t>(rows) + longs : 0;
      return tiles * heads * sizeof(AttentionItem);
    };
    num_dq_tiles = longs > 0 ? tokens / kPaddedRows + longs + 1 : 0;  // the last is nobody's
    counters = take(kCounters * sizeof(int));
    packs = take(most_packs(tokens, static_cast<std::size_t>(p.batch)) * sizeof(AttentionPack));
    forward_items = take(items(kernels.forward_shape.query_rows));
    backward_items = take(items(kernels.backward_shape.key_rows));
    dq_tiles = take(num_dq_tiles * sizeof(AttentionItem));
    long_offsets = take(longs * sizeof(std::int64_t));
    long_sequences = take(longs * sizeof(int));
    // Always there, so that one plan serves layers with and without time bias.
    usable = take(longs * sizeof(int));
    // A tile may read past its sequence, even the last one.
    const std::size_t times =
        longs > 0 ? (num_dq_tiles + 2) * kPaddedRows * sizeof(std::uint32_t) : 0;
    key_times = take(times);
    query_times = take(times);
    dq_bytes = p.deterministic ? 0
                               : num_dq_tiles * kPaddedRows * heads *
                                     static_cast<std::size_t>(kernels.width) * sizeof(float);
    pair_starts = take(longs * sizeof(int));
    const std::size_t pair_bytes = static_cast<std::size_t>(most_units(p)) * kUnitBytes;
    pair_bias = take(pair_bytes);
    const bool tables = backward && has_tables(p);
    pair_gradients = take(tables ? pair_bytes : 0);
    largest = take(tables && p.deterministic ? num_dq_tiles * sizeof(unsigned) : 0);
    position_sums =
        take(tables ? ExactSums::bytes(static_cast<std::size_t>(position_sums_of(p)), 1) : 0);
    time_sums = take(tables ? ExactSums::bytes(kTimeBuckets, kTimeSumCopies) : 0);
    dq_sums = take(backward ? dq_bytes : 0);
  }
};

template <class T>
T* at(const AttentionParams& p, std::size_t offset) {
  return reinterpret_cast<T*>(static_cast<char*>(p.workspace) + offset);
}

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

EncodeTiled encode_tiled() {
  static const EncodeTiled found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                           cudaEnableDefault, &result),
          "cudaGetDriverEntryPointByVersion");
    TGR_CHECK(result == cudaDriverEntryPointSuccess && function != nullptr,
              "the NVIDIA driver has no cuTensorMapEncodeTiled; driver 525 or newer is needed");
    return reinterpret_cast<EncodeTiled>(function);
  }();
  return found;
}

void check_rows(const char* name, const void* data, std::int64_t stride, int width) {
  TGR_CHECK(data != nullptr, "attention: ", name, " is null");
  TGR_CHECK(reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % 8 == 0 && width % 8 == 0,
            "attention: ", name,
            " needs 16-byte alignment and width and stride in multiples of 8, has width ", width,
            " and stride ", stride);
}

// Rows of [tokens, heads, width], read in boxes of `box_rows` rows and one panel of one head; what
// lies past the width or the last token reads as zero.
CUtensorMap tensor_map(const char* name, const AttentionParams& p, const void* data,
                       std::int64_t stride, int width, int tile_width, int box_rows,
                       std::int64_t head_stride = 0) {
  check_rows(name, data, stride, width);
  if (head_stride == 0) head_stride = width;
  const auto columns = static_cast<cuuint32_t>(tile_width < 64 ? tile_width : 64);
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(p.heads),
                               static_cast<cuuint64_t>(p.tokens)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(head_stride) * 2,
                                 static_cast<cuuint64_t>(stride) * 2};
  const cuuint32_t box[3] = {columns, 1, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult status =
      encode_tiled()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(data), sizes,
                     strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                     columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TGR_CHECK(status == CUDA_SUCCESS, "attention: no tensor map for ", name, ", driver error ",
            static_cast<int>(status));
  return map;
}

void check_workspace(const AttentionParams& p, std::size_t needed) {
  TGR_CHECK(p.workspace_bytes >= needed, "attention: workspace of ", p.workspace_bytes,
            " bytes, needs ", needed);
}

BiasArgs bias_args(const AttentionParams& p, const Layout& layout) {
  BiasArgs bias{};
  if (p.position != nullptr) {
    bias.position = p.position + p.position_length - 1;
    bias.position_length = static_cast<int>(p.position_length);
    if (p.dposition != nullptr) {
      bias.position_sums = {at<unsigned long long>(p, layout.position_sums),
                            static_cast<int>(position_sums_of(p)), 1};
    }
  }
  if (p.time != nullptr) {
    TGR_CHECK(p.key_times != nullptr && p.query_times != nullptr,
              "attention: a time table needs key_times and query_times");
    bias.time = p.time;
    bias.key_times = at<std::uint32_t>(p, layout.key_times);
    bias.query_times = at<std::uint32_t>(p, layout.query_times);
    bias.usable = at<int>(p, layout.usable);
    bias.exact_key_times = p.key_times;
    bias.exact_query_times = p.query_times;
    if (p.dtime != nullptr) {
      bias.time_sums = {at<unsigned long long>(p, layout.time_sums), kTimeBuckets, kTimeSumCopies};
    }
  }
  bias.window = p.window;
  bias.num_targets = p.num_targets;
  bias.long_sequences = at<int>(p, layout.long_sequences);
  return bias;
}

AttentionArgs common_args(const AttentionParams& p, const Layout& layout) {
  AttentionArgs args;
  std::memset(&args, 0, sizeof(args));
  if (has_pairs(p)) {
    args.pairs.starts = at<int>(p, layout.pair_starts);
    args.pairs.bias =
        p.pair_bias != nullptr ? static_cast<char*>(p.pair_bias) : at<char>(p, layout.pair_bias);
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

PairTiles pair_tiles(const AttentionParams& p, const Layout& layout, const AttentionArgs& args) {
  return {args.dq_tiles, args.num_dq_tiles, at<std::int64_t>(p, layout.long_offsets),
          static_cast<int>(most_long(p))};
}

HeadRows head_rows(const char* name, const void* data, std::int64_t stride, int width,
                   std::int64_t head_stride = 0) {
  check_rows(name, data, stride, width);
  return {static_cast<const __nv_bfloat16*>(data), stride, head_stride != 0 ? head_stride : width};
}
OutputRows output_rows(const char* name, void* data, std::int64_t stride, int width,
                       std::int64_t head_stride = 0) {
  check_rows(name, data, stride, width);
  return {static_cast<__nv_bfloat16*>(data), stride, head_stride != 0 ? head_stride : width};
}

ShortArgs short_args(const AttentionParams& p, const Layout& layout) {
  ShortArgs args{};
  args.packs = at<AttentionPack>(p, layout.packs);
  args.num_packs = at<int>(p, layout.counters) + 8;
  args.offsets = p.offsets;
  args.bias = bias_args(p, layout);
  args.half_alpha = static_cast<float>(0.5 * p.alpha);
  args.output_scale = static_cast<float>(1 / p.norm_length);
  args.score_scale = static_cast<float>(0.5 * p.alpha / p.norm_length);
  args.heads = p.heads;
  args.query_width = p.query_width;
  args.value_width = p.value_width;
  args.q = head_rows("q", p.q, p.q_stride, p.query_width);
  args.k = head_rows("k", p.k, p.k_stride, p.query_width);
  args.v = head_rows("v", p.v, p.v_stride, p.value_width);
  return args;
}

void short_forward(const AttentionParams& p, const Layout& layout, int width) {
  ShortArgs args = short_args(p, layout);
  args.out = output_rows("out", p.out, p.out_stride, p.value_width, p.out_head_stride);
  launch_short_forward(args, width, static_cast<cudaStream_t>(p.stream));
}

void short_backward(const AttentionParams& p, const Layout& layout, int width) {
  ShortArgs args = short_args(p, layout);
  args.dout = head_rows("dout", p.dout, p.dout_stride, p.value_width, p.dout_head_stride);
  args.dq = output_rows("dq", p.dq, p.dq_stride, p.query_width);
  args.dk = output_rows("dk", p.dk, p.dk_stride, p.query_width);
  args.dv = output_rows("dv", p.dv, p.dv_stride, p.value_width);
  if (p.q_before != nullptr) {
    args.q_before = head_rows("q before SiLU", p.q_before, p.q_before_stride, p.query_width);
  }
  launch_short_backward(args, width, static_cast<cudaStream_t>(p.stream));
}

// Tiles of rows for the kernels that take them in these sizes.
void set_maps(const AttentionParams& p, int width, int query_rows, int key_rows,
              AttentionArgs& args) {
  args.q_map = tensor_map("q", p, p.q, p.q_stride, p.query_width, width, query_rows);
  args.k_map = tensor_map("k", p, p.k, p.k_stride, p.query_width, width, key_rows);
  args.v_map = tensor_map("v", p, p.v, p.v_stride, p.value_width, width, key_rows);
}
CUtensorMap dout_map(const AttentionParams& p, int width, int query_rows) {
  return tensor_map("dout", p, p.dout, p.dout_stride, p.value_width, width, query_rows,
                    p.dout_head_stride);
}

void use_forward_items(const AttentionParams& p, const Layout& layout, AttentionArgs& args) {
  args.items = at<AttentionItem>(p, layout.forward_items);
  args.num_items = at<int>(p, layout.counters);
  args.next_item = at<int>(p, layout.counters) + 2;
}

void long_backward(const AttentionParams& p, const Layout& layout, const KernelSet& kernels,
                   const BiasArgs& bias, bool gradients) {
  const auto stream = static_cast<cudaStream_t>(p.stream);
  AttentionArgs args = common_args(p, layout);
  const BackwardShape shape = kernels.backward_shape;
  set_maps(p, kernels.width, shape.query_rows, shape.key_rows, args);
  args.dout_map = dout_map(p, kernels.width, shape.query_rows);
  check_rows("dq", p.dq, p.dq_stride, p.query_width);
  check_rows("dk", p.dk, p.dk_stride, p.query_width);
  check_rows("dv", p.dv, p.dv_stride, p.value_width);
  args.items = at<AttentionItem>(p, layout.backward_items);
  args.num_items = at<int>(p, layout.counters) + 1;
  args.next_item = at<int>(p, layout.counters) + 4;
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
  if (has_pairs(p) && p.pair_bias == nullptr) {
    launch_pair_bias(args.pairs, bias, pair_tiles(p, layout, args), stream);
  }
  if (p.deterministic) {
    kernels.key_gradients(args, has_pairs(p), stream);
    const int query_rows = kernels.forward_shape.query_rows;
    set_maps(p, kernels.width, query_rows, kQueryGradientKeys, args);
    args.dout_map = dout_map(p, kernels.width, query_rows);
    use_forward_items(p, layout, args);
    kernels.query_gradients(args, has_pairs(p), stream);
  } else {
    kernels.backward(args, has_pairs(p), stream);
  }
  if (gradients) {
    launch_table_gradients(args.pairs, bias, pair_tiles(p, layout, args), p.heads,
                           at<int>(p, layout.counters) + 6, stream);
  }
}

}  // namespace

std::size_t attention_forward_workspace_bytes(const AttentionParams& params) {
  return Layout(params, pick_kernels(params), false).bytes;
}
std::size_t attention_backward_workspace_bytes(const AttentionParams& params) {
  return Layout(params, pick_kernels(params), true).bytes;
}

std::size_t attention_pair_bias_bytes(const AttentionParams& params) {
  return static_cast<std::size_t>(most_units(params)) * kUnitBytes;
}

void plan_attention(const AttentionParams& p) {
  const KernelSet kernels = pick_kernels(p);
  const Layout layout(p, kernels, false);
  check_workspace(p, layout.bytes);
  const auto stream = static_cast<cudaStream_t>(p.stream);
  int* counters = at<int>(p, layout.counters);
  check(cudaMemsetAsync(counters, 0, kCounters * sizeof(int), stream), "cudaMemsetAsync");
  PlanArgs args{};
  args.offsets = p.offsets;
  args.tokens = p.tokens;
  args.batch = p.batch;
  args.most_long = static_cast<int>(most_long(p));
  args.heads = p.heads;
  args.forward_rows = kernels.forward_shape.query_rows;
  args.backward_rows = kernels.backward_shape.key_rows;
  args.num_forward = counters;
  args.num_backward = counters + 1;
  args.forward_items = at<AttentionItem>(p, layout.forward_items);
  args.backward_items = at<AttentionItem>(p, layout.backward_items);
  args.dq_tiles = at<AttentionItem>(p, layout.dq_tiles);
  args.num_dq_tiles = static_cast<int>(layout.num_dq_tiles);
  args.long_offsets = at<std::int64_t>(p, layout.long_offsets);
  args.long_sequences = at<int>(p, layout.long_sequences);
  args.pair_starts = at<int>(p, layout.pair_starts);
  args.pair_units = most_units(p);
  args.key_times = p.key_times;
  args.query_times = p.query_times;
  args.usable = at<int>(p, layout.usable);
  args.relative_key_times = at<std::uint32_t>(p, layout.key_times);
  args.relative_query_times = at<std::uint32_t>(p, layout.query_times);
  args.num_packs = counters + 8;
  args.packs = at<AttentionPack>(p, layout.packs);
  launch_plan(args, stream);
}

void attention_forward(const AttentionParams& p) {
  if (p.tokens == 0) return;
  const KernelSet kernels = pick_kernels(p);
  const Layout layout(p, kernels, false);
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
  if (has_pairs(p) && !p.pair_bias_ready) {
    launch_pair_bias(args.pairs, bias_args(p, layout), pair_tiles(p, layout, args), stream);
  }
  kernels.forward(args, has_pairs(p), stream);
}

void attention_backward(const AttentionParams& p) {
  if (p.tokens == 0) return;
  const KernelSet kernels = pick_kernels(p);
  const Layout layout(p, kernels, true);
  check_workspace(p, layout.bytes);
  TGR_CHECK(layout.dq_bytes <= kMostDqBytes, "attention: sums of dq of ", layout.num_dq_tiles,
            " tiles of 64 queries x ", p.heads, " heads x ", kernels.width, " take ",
            layout.dq_bytes, " bytes, more than the ", kMostDqBytes,
            " that the kernels can count; give fewer sequences at once");
  const auto stream = static_cast<cudaStream_t>(p.stream);
  const BiasArgs bias = bias_args(p, layout);
  const bool gradients = bias.position_sums.words != nullptr || bias.time_sums.words != nullptr;
  const std::size_t zeros_at = gradients ? layout.pair_gradients : layout.dq_sums;
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
