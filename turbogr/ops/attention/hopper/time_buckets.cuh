// Buckets of a gap in time, clamp(floor(ln(max(1, |d|)) / 0.301), 0, 128), by comparing integers
// with ceil(exp(0.301 k)): no gap is rounded into a neighbour. Gaps below 2^32 take one load and
// three compares.
#pragma once

#include <bit>
#include <cstdint>

namespace turbogr::cuda {

inline constexpr int kTimeBuckets = 129;

// The smallest gap of each bucket. Two buckets may start together: then the first holds nothing.
// clang-format off
inline constexpr std::uint64_t kFirstGap[kTimeBuckets] = {
    1u, 2u, 2u, 3u, 4u, 5u, 7u, 9u, 12u, 16u, 21u, 28u, 38u, 51u, 68u, 92u, 124u, 167u, 226u,
    305u, 412u, 557u, 752u, 1016u, 1372u, 1854u, 2505u, 3385u, 4574u, 6180u, 8350u, 11283u,
    15245u, 20600u, 27834u, 37610u, 50818u, 68666u, 92782u, 125367u, 169397u, 228891u, 309280u,
    417902u, 564672u, 762990u, 1030960u, 1393042u, 1882291u, 2543369u, 3436624u, 4643598u,
    6274473u, 8478127u, 11455724u, 15479081u, 20915478u, 28261189u, 38186783u, 51598337u,
    69720155u, 94206525u, 127292737u, 171999135u, 232406837u, 314030289u, 424320660u, 573346040u,
    774710524u, 1046796097u, 1414440665u, 1911205440u, 2582438644u, 3489415219u, 4714930440ull,
    6370858056ull, 8608362918ull, 11631700390ull, 15716862225ull, 21236771058ull, 28695323438ull,
    38773389087ull, 52390965538ull, 70791162047ull, 95653679456ull, 129248145233ull,
    174641301215ull, 235976957620ull, 318854269524ull, 430838867570ull, 582153502558ull,
    786611250865ull, 1062876470327ull, 1436168615607ull, 1940564449431ull, 2622108811928ull,
    3543017921206ull, 4787358912370ull, 6468724083690ull, 8740600409714ull, 11810380924256ull,
    15958297031977ull, 21563000024645ull, 29136127064885ull, 39369007066311ull, 53195770115076ull,
    71878621509799ull, 97123064840915ull, 131233592491847ull, 177324056098577ull,
    239601921079808ull, 323752354013490ull, 437457205087951ull, 591096262037950ull,
    798694791013881ull, 1079203862655709ull, 1458230340644303ull, 1970374458392745ull,
    2662388374508185ull, 3597444042437672ull, 4860899995802064ull, 6568093482609850ull,
    8874869269797386ull, 11991806262278896ull, 16203440643505319ull, 21894240362561142ull,
    29583702103771285ull, 39973774639893605ull, 54012937709959665ull};
// clang-format on

// Gaps below 2^32 are in buckets before this one.
inline constexpr int kShortBuckets = 74;
static_assert(kFirstGap[kShortBuckets] > ~0u);

struct TimeBucketTables {
  std::uint64_t first_gap[kTimeBuckets];
  // For gaps of L bits: the bucket of the smallest, and where the next three begin. There are no
  // more.
  struct alignas(16) Entry {
    std::uint32_t bucket;
    std::uint32_t next[3];
  } by_bits[33];
};

constexpr TimeBucketTables make_time_bucket_tables() {
  TimeBucketTables tables{};
  for (int k = 0; k < kTimeBuckets; ++k) tables.first_gap[k] = kFirstGap[k];
  for (int bits = 0; bits <= 32; ++bits) {
    const std::uint64_t smallest = bits == 0 ? 0 : 1ull << (bits - 1);
    std::uint32_t bucket = 0;
    while (kFirstGap[bucket + 1] <= smallest) ++bucket;
    tables.by_bits[bits].bucket = bucket;
    for (std::uint32_t i = 0; i < 3; ++i) {
      const std::uint64_t gap = kFirstGap[bucket + 1 + i];
      tables.by_bits[bits].next[i] = gap < ~0u ? static_cast<std::uint32_t>(gap) : ~0u;
    }
  }
  return tables;
}

[[maybe_unused]] static __device__ const TimeBucketTables kTimeBucketTables =
    make_time_bucket_tables();

// What a block keeps in shared memory to look up gaps below 2^32 - 1.
struct ShortGapTables {
  TimeBucketTables::Entry by_bits[33];
  // Where bucket k begins, beyond the last one never; a search may run four past it.
  std::uint32_t first_gap[kShortBuckets + 4];
  float weight[kShortBuckets + 4];  // over alpha

  __device__ void fill(const float* weights, float scale, int thread, int threads) {
#pragma unroll 1
    for (int i = thread; i < 33; i += threads) by_bits[i] = kTimeBucketTables.by_bits[i];
#pragma unroll 1
    for (int k = thread; k < kShortBuckets + 4; k += threads) {
      const std::uint64_t gap = kTimeBucketTables.first_gap[k];
      first_gap[k] = gap < ~0u ? static_cast<std::uint32_t>(gap) : ~0u;
      weight[k] = weights != nullptr ? scale * weights[k] : 0.f;
    }
  }
  __device__ __forceinline__ int bucket(std::uint32_t gap) const {
    const auto entry = reinterpret_cast<const uint4*>(by_bits)[32 - __clz(static_cast<int>(gap))];
    return static_cast<int>(entry.x) + (gap >= entry.y) + (gap >= entry.z) + (gap >= entry.w);
  }
};

// Any two times, in any order.
__device__ __forceinline__ int any_gap_bucket(std::int64_t a, std::int64_t b) {
  const auto x = static_cast<std::uint64_t>(a);
  const auto y = static_cast<std::uint64_t>(b);
  const std::uint64_t gap = a > b ? x - y : y - x;
  int bucket = 0;
#pragma unroll 1
  for (int step = 64; step > 0; step /= 2) {
    if (gap >= kTimeBucketTables.first_gap[bucket + step]) bucket += step;
  }
  if (bucket == 127 && gap >= kTimeBucketTables.first_gap[128]) bucket = 128;
  return bucket;
}

}  // namespace turbogr::cuda
