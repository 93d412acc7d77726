#include <algorithm>
#include <cstring>

#include "turbogr/cuda/check.cuh"
#include "turbogr/ops/attention/hopper/attention.h"
#include "turbogr/ops/attention/hopper/attention_plan.cuh"
#include "turbogr/ops/attention/hopper/fuxi.h"
#include "turbogr/ops/attention/hopper/fuxi_args.cuh"
#include "turbogr/ops/attention/hopper/head_rows.cuh"

namespace turbogr::cuda {
namespace {

// The width of the tiles that the latent map's kernels use.
int latent_tile(const FuxiParams& p) {
  const int width = p.query_width > p.value_width ? p.query_width : p.value_width;
  if (width <= 32) return 32;
  if (width <= 64) return 64;
  return width <= 128 ? 128 : 256;
}

// Whether the latent map's kernel writes heads side by side, to be moved to their places after.
bool latent_apart(const FuxiParams& p) { return p.value_width != latent_tile(p); }

// The latent map is HSTU attention without bias.
AttentionParams latent_params(const FuxiParams& p) {
  AttentionParams a;
  a.q = p.q;
  a.k = p.k;
  a.v = p.v;
  a.q_stride = p.q_stride;
  a.k_stride = p.k_stride;
  a.v_stride = p.v_stride;
  a.out = static_cast<std::uint16_t*>(p.out) + 2 * p.value_width;
  a.out_stride = p.out_stride;
  a.out_head_stride = a.dout_head_stride = 3 * static_cast<std::int64_t>(p.value_width);
  a.offsets = p.offsets;
  a.tokens = p.tokens;
  a.batch = p.batch;
  a.heads = p.heads;
  a.query_width = p.query_width;
  a.value_width = p.value_width;
  a.alpha = p.alpha;
  a.norm_length = p.norm_length;
  a.dout = static_cast<const std::uint16_t*>(p.dout) + 2 * p.value_width;
  a.dout_stride = p.dout_stride;
  a.dq = p.dq;
  a.dk = p.dk;
  a.dv = p.dv;
  a.dq_stride = p.dq_stride;
  a.dk_stride = p.dk_stride;
  a.dv_stride = p.dv_stride;
  a.deterministic = p.deterministic;
  a.stream = p.stream;
  return a;
}

// No query is further from its key.
std::int64_t position_sums_of(const FuxiParams& p) { return std::min(p.position_length, p.tokens); }

constexpr int kCounters = 7;  // items, then two of each kernel

// Where things lie in the workspace; the plans first.
struct Layout {
  std::size_t bytes = 0;
  std::size_t counters, items, usable, key_times, query_times;
  std::size_t latent_plan, latent_out, pairs, position_sums, time_sums;
  std::size_t latent_bytes;

  std::size_t take(std::size_t size) {
    const std::size_t at = bytes;
    bytes += (size + 255) / 256 * 256;
    return at;
  }
  Layout(const FuxiParams& p, bool backward) {
    const auto tokens = static_cast<std::size_t>(p.tokens);
    const std::size_t blocks = tokens / kFuxiRows + static_cast<std::size_t>(p.batch);
    counters = take(kCounters * sizeof(int));
    items = take(blocks * sizeof(FuxiItem));
    // Always there, so that one plan serves layers with and without a time map.
    usable = take(static_cast<std::size_t>(p.batch) * sizeof(int));
    key_times = take(blocks * kFuxiRows * sizeof(std::uint32_t));
    query_times = take(blocks * kFuxiRows * sizeof(std::uint32_t));
    const AttentionParams latent = latent_params(p);
    latent_bytes = backward ? attention_backward_workspace_bytes(latent)
                            : attention_forward_workspace_bytes(latent);
    // The latent map's plan is at the beginning of its workspace in both directions.
    latent_plan = bytes;
    const std::size_t forward_bytes =
        attention_forward_workspace_bytes(latent) +
        (latent_apart(p) ? tokens * static_cast<std::size_t>(p.heads * p.value_width) * 2 + 256
                         : 0);
    latent_out = latent_plan + (attention_forward_workspace_bytes(latent) + 255) / 256 * 256;
    take(latent_bytes > forward_bytes ? latent_bytes : forward_bytes);
    // No sequence is longer than the batch, however long the table.
    pairs = take((tokens + 2 * kFuxiMargin) * 4);
    // Zero before a backward call.
    const bool tables = backward && (p.position != nullptr || p.time != nullptr);
    position_sums =
        take(tables ? ExactSums::bytes(static_cast<std::size_t>(position_sums_of(p)), 1) : 0);
    time_sums = take(tables ? ExactSums::bytes(kTimeBuckets, kFuxiTimeCopies) : 0);
  }
};

template <class T>
T* at(const FuxiParams& p, std::size_t offset) {
  return reinterpret_cast<T*>(static_cast<char*>(p.workspace) + offset);
}

void check_rows(const char* name, const void* data, std::int64_t stride, int width) {
  check_head_rows("fuxi", name, data, stride, width);
}

// Values of the batch in tiles of 64 rows and one panel of one head.
CUtensorMap tile_map(const char* name, const FuxiParams& p, const void* data, std::int64_t stride,
                     int head_stride) {
  return head_rows_map("fuxi", name, data, {p.tokens, p.heads, p.value_width, stride, head_stride},
                       64, 64);
}

void check_params(const FuxiParams& p, std::size_t workspace_bytes) {
  TGR_CHECK(p.workspace_bytes >= workspace_bytes, "fuxi: workspace of ", p.workspace_bytes,
            " bytes, needs ", workspace_bytes);
  TGR_CHECK(
      p.time == nullptr || p.tokens == 0 || (p.key_times != nullptr && p.query_times != nullptr),
      "fuxi: a time table needs key_times and query_times");
  TGR_CHECK(p.position == nullptr || p.position_length > 0,
            "fuxi: a position table needs a position_length above 0");
}

FuxiMaps maps_of(const FuxiParams& p, const Layout& layout) {
  FuxiMaps maps{};
  if (p.position != nullptr) {
    maps.position = p.position + p.position_length - 1;
    maps.position_length = static_cast<int>(std::min(p.position_length, p.tokens));
    maps.pairs = at<std::uint32_t>(p, layout.pairs) + maps.position_length - 1 + kFuxiMargin;
  }
  maps.time = p.time;
  maps.key_times = at<std::uint32_t>(p, layout.key_times);
  maps.query_times = at<std::uint32_t>(p, layout.query_times);
  maps.usable = at<int>(p, layout.usable);
  maps.exact_key_times = p.key_times;
  maps.exact_query_times = p.query_times;
  return maps;
}

FuxiWork work_of(const FuxiParams& p, const Layout& layout, int kernel, int parts) {
  int* counters = at<int>(p, layout.counters);
  return {at<FuxiItem>(p, layout.items), counters, counters + 1 + 2 * kernel, parts};
}

int panels_per_head(const FuxiParams& p) { return (p.value_width + 63) / 64; }
int column_groups(const FuxiParams& p) {
  return (p.heads * panels_per_head(p) + kFuxiPanels - 1) / kFuxiPanels;
}

FuxiValuesArgs values_args(const FuxiParams& p, const Layout& layout) {
  FuxiValuesArgs args;
  std::memset(&args, 0, sizeof(args));
  args.maps = maps_of(p, layout);
  args.heads = p.heads;
  args.width = p.value_width;
  args.panels_per_head = panels_per_head(p);
  args.groups = column_groups(p);
  return args;
}

AttentionParams latent_in_workspace(const FuxiParams& p, const Layout& layout) {
  AttentionParams latent = latent_params(p);
  latent.workspace = at<char>(p, layout.latent_plan);
  latent.workspace_bytes = layout.latent_bytes;
  return latent;
}

}  // namespace

std::size_t fuxi_forward_workspace_bytes(const FuxiParams& params) {
  return Layout(params, false).bytes;
}
std::size_t fuxi_backward_workspace_bytes(const FuxiParams& params) {
  return Layout(params, true).bytes;
}

void plan_fuxi(const FuxiParams& p) {
  const Layout layout(p, false);
  check_params(p, layout.bytes);
  const auto stream = static_cast<cudaStream_t>(p.stream);
  int* counters = at<int>(p, layout.counters);
  check(cudaMemsetAsync(counters, 0, kCounters * sizeof(int), stream), "cudaMemsetAsync");
  FuxiPlanArgs args{};
  args.offsets = p.offsets;
  args.batch = p.batch;
  args.items = at<FuxiItem>(p, layout.items);
  args.num_items = counters;
  args.key_times = p.key_times;
  args.query_times = p.query_times;
  args.usable = at<int>(p, layout.usable);
  args.relative_key_times = at<std::uint32_t>(p, layout.key_times);
  args.relative_query_times = at<std::uint32_t>(p, layout.query_times);
  launch_fuxi_plan(args, stream);
  plan_attention(latent_in_workspace(p, layout));
}

void fuxi_forward(const FuxiParams& p) {
  if (p.tokens == 0) return;
  const Layout layout(p, false);
  check_params(p, layout.bytes);
  check_rows("out", p.out, p.out_stride, p.value_width);
  const auto stream = static_cast<cudaStream_t>(p.stream);
  AttentionParams latent = latent_in_workspace(p, layout);
  if (latent_apart(p)) {
    const FuxiCopyArgs copy{at<char>(p, layout.latent_out),
                            latent.out,
                            static_cast<std::int64_t>(p.heads) * p.value_width,
                            p.out_stride,
                            p.value_width,
                            3 * p.value_width,
                            p.heads,
                            p.value_width,
                            p.tokens};
    latent.out = at<char>(p, layout.latent_out);
    latent.out_stride = copy.from_stride;
    latent.out_head_stride = 0;
    attention_forward(latent);
    launch_fuxi_copy(copy, stream);
  } else {
    attention_forward(latent);
  }
  FuxiValuesArgs args = values_args(p, layout);
  args.source[0] = args.source[1] = tile_map("v", p, p.v, p.v_stride, p.value_width);
  args.work = work_of(p, layout, 0, 2 * args.groups);
  args.to = p.out;
  args.to_stride = p.out_stride;
  args.to_head_stride = 3 * p.value_width;
  args.to_map_stride = p.value_width;
  if (p.position != nullptr) launch_fuxi_pairs(args.maps, false, stream);
  launch_fuxi_forward(args, stream);
}

void fuxi_backward(const FuxiParams& p) {
  if (p.tokens == 0) return;
  const Layout layout(p, true);
  check_params(p, layout.bytes);
  const auto stream = static_cast<cudaStream_t>(p.stream);
  attention_backward(latent_in_workspace(p, layout));
  if (p.position == nullptr && p.time == nullptr) return;

  const auto* dout = static_cast<const std::uint16_t*>(p.dout);
  const CUtensorMap dout_maps[2] = {
      tile_map("dout", p, dout, p.dout_stride, 3 * p.value_width),
      tile_map("dout", p, dout + p.value_width, p.dout_stride, 3 * p.value_width)};
  FuxiValuesArgs values = values_args(p, layout);
  values.source[0] = dout_maps[0];
  values.source[1] = dout_maps[1];
  values.work = work_of(p, layout, 1, values.groups);
  values.to = p.dv;
  values.to_stride = p.dv_stride;
  values.to_head_stride = p.value_width;
  if (p.position != nullptr) launch_fuxi_pairs(values.maps, true, stream);
  launch_fuxi_values_gradient(values, stream);

  FuxiTablesArgs tables;
  std::memset(&tables, 0, sizeof(tables));
  tables.dout[0] = dout_maps[0];
  tables.dout[1] = dout_maps[1];
  tables.v = tile_map("v", p, p.v, p.v_stride, p.value_width);
  // About two key blocks a task.
  const std::int64_t parts = (p.tokens / p.batch + 2 * kFuxiRows - 1) / (2 * kFuxiRows);
  tables.work =
      work_of(p, layout, 2, static_cast<int>(std::clamp<std::int64_t>(parts, 1, kFuxiMaxParts)));
  tables.maps = values.maps;
  tables.panels_per_head = values.panels_per_head;
  tables.panels = p.heads * values.panels_per_head;
  launch_zero(at<char>(p, layout.position_sums), (layout.bytes - layout.position_sums) / 16,
              stream);
  if (p.position != nullptr && p.dposition != nullptr) {
    tables.position_sums = {at<unsigned long long>(p, layout.position_sums),
                            static_cast<int>(position_sums_of(p)), 1};
  }
  if (p.time != nullptr && p.dtime != nullptr) {
    tables.time_sums = {at<unsigned long long>(p, layout.time_sums), kTimeBuckets, kFuxiTimeCopies};
  }
  launch_fuxi_table_gradients(tables, stream);
  if (tables.position_sums.words != nullptr) {
    launch_add_exact_sums(tables.position_sums, 1.f, p.dposition + p.position_length - 1, -1,
                          stream);
  }
  if (tables.time_sums.words != nullptr) {
    launch_add_exact_sums(tables.time_sums, 1.f, p.dtime, 1, stream);
  }
}

}  // namespace turbogr::cuda
