#include "turbogr/ops/rows/draw_negatives_kernels.h"

namespace turbogr::ops::kernels {

void draw_negatives(Cpu cpu, const NegativeSource& source, const NegativeKey& key,
                    View<const std::uint64_t, 1> row_keys, View<std::int64_t, 2> ids) {
  constexpr std::int64_t kGrain = 1 << 14;  // draws; a shared set is one row and still spreads
  const std::int64_t count = ids.shape[1];
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
