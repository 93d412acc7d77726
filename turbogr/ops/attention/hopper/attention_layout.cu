#include <algorithm>
#include <limits>

#include "turbogr/cuda/check.cuh"
#include "turbogr/ops/attention/hopper/attention_layout.cuh"
#include "turbogr/ops/attention/hopper/attention_pairs.cuh"
#include "turbogr/ops/attention/hopper/attention_short.cuh"
#include "turbogr/ops/attention/hopper/time_buckets.cuh"

namespace turbogr::cuda {
namespace {

template <int D>
KernelSet kernel_set(bool bias) {
  using Kernels = AttentionKernels<D>;
  return {D,
          Kernels::forward_shape(bias),
          Kernels::backward_shape(),
          Kernels::forward,
          Kernels::backward,
          Kernels::dq_rows,
          Kernels::key_gradients,
          Kernels::query_gradients};
}

bool has_tables(const AttentionParams& p) { return p.position != nullptr || p.time != nullptr; }

// No query is further from its key.
std::int64_t position_sums_of(const AttentionParams& p) {
  return std::min(p.position_length, p.max_length > 0 ? p.max_length : p.tokens);
}

}  // namespace

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

bool has_pairs(const AttentionParams& p) {
  return has_tables(p) || p.window > 0 || p.num_targets != nullptr;
}
std::int64_t most_long(const AttentionParams& p) {
  return most_long(p.tokens, p.batch, p.max_length);
}
std::int64_t most_units(const AttentionParams& p) {
  if (!has_pairs(p)) return 0;
  TGR_CHECK(p.max_length > 0 || p.tokens == 0,
            "attention: a bias or a mask needs max_length, the longest a sequence can be");
  return most_units(p.tokens, p.max_length, most_long(p));
}

PairBands bands_of(const AttentionParams& p) {
  const std::int64_t units = most_units(p);
  if (units == 0) return {};
  TGR_CHECK(units <= std::numeric_limits<int>::max(), "attention: a bias or a mask over ", units,
            " units of 64 x 64 pairs, more than can be counted; give fewer or shorter sequences");
  return pair_bands(p.tokens, p.max_length, kPackRows, p.pair_room);
}

AttentionLayout::AttentionLayout(const AttentionParams& p, const KernelSet& kernels, bool backward)
    : bands(bands_of(p)) {
  const auto tokens = static_cast<std::size_t>(p.tokens);
  const auto longs = static_cast<std::size_t>(most_long(p));
  const auto heads = static_cast<std::size_t>(p.heads);
  const auto tiles = [&](int rows) {
    return longs > 0 ? tokens / static_cast<std::size_t>(rows) + longs : 0;
  };
  const std::size_t forward_tiles = tiles(kernels.forward_shape.query_rows);
  const std::size_t backward_tiles = tiles(kernels.backward_shape.key_rows);
  num_dq_tiles = longs > 0 ? tokens / kPaddedRows + longs + 1 : 0;  // the last is nobody's
  const auto count = static_cast<std::size_t>(bands.count);
  num_counters = kBandBounds + 2 * (count + 1);
  counters = take(num_counters * sizeof(int));
  packs = take(most_packs(tokens, static_cast<std::size_t>(p.batch)) * sizeof(AttentionPack));
  forward_items = take(forward_tiles * heads * sizeof(AttentionItem));
  backward_items = take(backward_tiles * heads * sizeof(AttentionItem));
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
  forward_bands.kind = count > 1 ? PairBand::kOfQueries : PairBand::kAll;
  backward_bands.kind = count > 1 ? PairBand::kOfKeys : PairBand::kAll;
  forward_bands.bounds = counters + kBandBounds * sizeof(int);
  backward_bands.bounds = forward_bands.bounds + (count + 1) * sizeof(int);
  const std::size_t range_bytes = has_pairs(p) ? count * longs * sizeof(PairRange) : 0;
  forward_bands.ranges = backward_bands.ranges = take(range_bytes);
  if (count > 1) {
    backward_bands.ranges = take(range_bytes);
    forward_bands.areas = take((forward_tiles + 1) * sizeof(int));
    backward_bands.areas = take((backward_tiles + 1) * sizeof(int));
  }
  const int tile_rows = std::max(kernels.forward_shape.query_rows, kernels.backward_shape.key_rows);
  const auto pair_bytes =
      static_cast<std::size_t>(room_units(bands, most_units(p), p.max_length, tile_rows)) *
      kUnitBytes;
  pair_bias = take(pair_bytes);
  const bool tables = backward && has_tables(p);
  pair_gradients = take(tables ? pair_bytes : 0);
  largest = take(tables && p.deterministic ? num_dq_tiles * sizeof(unsigned) : 0);
  position_sums =
      take(tables ? ExactSums::bytes(static_cast<std::size_t>(position_sums_of(p)), 1) : 0);
  time_sums = take(tables ? ExactSums::bytes(kTimeBuckets, kTimeSumCopies) : 0);
  dq_sums = take(backward ? dq_bytes : 0);
}

BiasArgs bias_args(const AttentionParams& p, const AttentionLayout& layout) {
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

}  // namespace turbogr::cuda
