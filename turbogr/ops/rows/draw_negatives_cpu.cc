#include <algorithm>

#include "turbogr/ops/rows/draw_negatives_kernels.h"
#include "turbogr/ops/rows/draw_negatives_simd.h"

namespace turbogr::ops::kernels {

void draw_negatives(Cpu cpu, const NegativeSource& source, const NegativeKey& key,
                    View<const std::uint64_t, 1> row_keys, View<std::int64_t, 2> ids) {
  constexpr std::int64_t kGrain = 1 << 14;  // draws; a shared set is one row and still spreads
  const std::int64_t count = ids.shape[1];
  // Where all are uniform, whole pairs are drawn many at a time: the same ids.
  const std::int64_t known = source.known.shape[0];
  const std::int64_t items = known > 0 ? known : source.catalogue;
  if (source.uniform == count && count % 2 == 0 && items < std::int64_t{1} << 32) {
    const auto draw = uniform_draws(cpu.simd).draw;
    const auto bound = static_cast<std::uint32_t>(items);
    parallel_ranges(cpu.pool, ids.size(), kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      while (begin < end) {
        const std::int64_t token = begin / count, r = begin % count;
        const std::int64_t stop = std::min(end, (token + 1) * count);
        draw(key.seed, row_keys(token), negative_counter(key, r / 2), (stop - begin) / 2, bound,
             ids.data + begin);
        for (std::int64_t i = begin; i < stop && known > 0; ++i) {
          ids.data[i] = source.known(ids.data[i]);
        }
        begin = stop;
      }
    });
    return;
  }
  parallel_ranges(cpu.pool, ids.size(), kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    std::int64_t token = begin / count;
    std::int64_t r = begin % count;
    NegativeBits pair = {};
    for (std::int64_t i = begin; i < end; ++i) {
      if (r % 2 == 0 || i == begin) pair = negative_bits(key, row_keys(token), r / 2);
      ids.data[i] = draw_negative(source, r, pair.bits[r % 2]);
      if (++r == count) {
        r = 0;
        ++token;
      }
    }
  });
}

void draw_places(Cpu cpu, const NegativeKey& key, View<const std::uint64_t, 1> row_keys,
                 View<const std::int32_t, 1> place_of, View<std::int32_t, 2> places) {
  constexpr std::int64_t kTogether = 256;
  constexpr std::int64_t kGrain = 1 << 14;  // draws
  const std::int64_t count = places.shape[1];
  const auto draw = uniform_draws(cpu.simd).draw;
  const auto bound = static_cast<std::uint32_t>(place_of.shape[0]);
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / count);
  parallel_ranges(cpu.pool, places.shape[0], grain, [&](std::int64_t begin, std::int64_t end, int) {
    std::int64_t drawn[kTogether];
    for (std::int64_t token = begin; token < end; ++token) {
      for (std::int64_t r = 0; r < count; r += kTogether) {
        const std::int64_t now = std::min(kTogether, count - r);
        draw(key.seed, row_keys(token), negative_counter(key, r / 2), (now + 1) / 2, bound, drawn);
        for (std::int64_t i = 0; i < now; ++i) places(token, r + i) = place_of(drawn[i]);
      }
    }
  });
}

}  // namespace turbogr::ops::kernels
