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

}  // namespace turbogr::ops::kernels
