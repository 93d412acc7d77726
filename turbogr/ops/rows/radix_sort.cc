#include "turbogr/ops/rows/radix_sort.h"

#include <algorithm>
#include <utility>

#include "turbogr/core/check.h"

namespace turbogr::ops {
namespace {

constexpr int kMostDigitBits = 12;  // 4096 write streams: what the L2 of a core still follows
constexpr std::int64_t kMostBins = 1 << kMostDigitBits;
constexpr std::int64_t kMaxPieces = 64;
constexpr std::int64_t kMinGrain = 1 << 14;

std::int64_t grain_of(std::int64_t count) {
  return std::max(kMinGrain, (count + kMaxPieces - 1) / kMaxPieces);
}

}  // namespace

std::int64_t radix_histogram_size(std::int64_t count) {
  return (count + grain_of(count) - 1) / grain_of(count) * kMostBins;
}

template <class Key>
Keyed<Key>* radix_sort(ThreadPool& pool, Keyed<Key>* items, Keyed<Key>* spare, std::int64_t count,
                       int key_bits, View<std::uint32_t, 1> histogram) {
  TGR_ASSERT(histogram.shape[0] >= radix_histogram_size(count));
  const std::int64_t grain = grain_of(count);
  const std::int64_t pieces = (count + grain - 1) / grain;
  // As few passes as there can be, and then digits as short as they can be.
  const int passes = (key_bits + kMostDigitBits - 1) / kMostDigitBits;
  const int digit_bits = passes == 0 ? 0 : (key_bits + passes - 1) / passes;
  const std::int64_t num_bins = std::int64_t{1} << digit_bits;
  for (int shift = 0; shift < key_bits; shift += digit_bits) {
    const auto digit = [shift, num_bins](Key key) {
      return static_cast<std::int64_t>((key >> shift) & static_cast<Key>(num_bins - 1));
    };
    parallel_ranges(pool, count, grain, [&](std::int64_t begin, std::int64_t end, int) {
      std::uint32_t* bins = histogram.data + begin / grain * num_bins;
      std::fill(bins, bins + num_bins, 0u);
      for (std::int64_t i = begin; i < end; ++i) ++bins[digit(items[i].key)];
    });
    std::uint32_t next = 0;
    bool one_bin = false;
    for (std::int64_t bin = 0; bin < num_bins; ++bin) {
      const std::uint32_t first = next;
      for (std::int64_t piece = 0; piece < pieces; ++piece) {
        std::uint32_t& entry = histogram.data[piece * num_bins + bin];
        next += std::exchange(entry, next);
      }
      one_bin = one_bin || static_cast<std::int64_t>(next - first) == count;
    }
    if (one_bin) continue;
    parallel_ranges(pool, count, grain, [&](std::int64_t begin, std::int64_t end, int) {
      std::uint32_t* bins = histogram.data + begin / grain * num_bins;
      for (std::int64_t i = begin; i < end; ++i) spare[bins[digit(items[i].key)]++] = items[i];
    });
    std::swap(items, spare);
  }
  return items;
}

template Keyed<std::uint32_t>* radix_sort<std::uint32_t>(ThreadPool&, Keyed<std::uint32_t>*,
                                                         Keyed<std::uint32_t>*, std::int64_t, int,
                                                         View<std::uint32_t, 1>);
template Keyed<std::uint64_t>* radix_sort<std::uint64_t>(ThreadPool&, Keyed<std::uint64_t>*,
                                                         Keyed<std::uint64_t>*, std::int64_t, int,
                                                         View<std::uint32_t, 1>);

}  // namespace turbogr::ops
