// Which of 129 buckets a gap in time falls into: clamp(floor(ln(max(1, |d|)) / 0.301), 0, 128),
// found by comparing integers with ceil(exp(0.301 k)), so no gap is ever rounded into a neighbour.
#pragma once

#include <bit>
#include <cstdint>

namespace turbogr::ops {

inline constexpr int kTimeBuckets = 129;

struct TimeBucketTable {
  // The smallest gap of bucket k. Two buckets may start together: then the first holds nothing.
  std::uint64_t first_gap[kTimeBuckets];
  // The bucket of the smallest gap that takes L bits; the last gap of L bits is at most three on.
  std::uint8_t first_bucket[65];
};

// clang-format off
inline constexpr TimeBucketTable kTimeBucketTable = {{
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
    15958297031977ull, 21563000024645ull, 29136127064885ull, 39369007066311ull,
    53195770115076ull, 71878621509799ull, 97123064840915ull, 131233592491847ull,
    177324056098577ull, 239601921079808ull, 323752354013490ull, 437457205087951ull,
    591096262037950ull, 798694791013881ull, 1079203862655709ull, 1458230340644303ull,
    1970374458392745ull, 2662388374508185ull, 3597444042437672ull, 4860899995802064ull,
    6568093482609850ull, 8874869269797386ull, 11991806262278896ull, 16203440643505319ull,
    21894240362561142ull, 29583702103771285ull, 39973774639893605ull, 54012937709959665ull},
{
    0, 0, 2, 4, 6, 9, 11, 13, 16, 18, 20, 23, 25, 27, 29, 32, 34, 36, 39, 41, 43, 46, 48, 50, 52,
    55, 57, 59, 62, 64, 66, 69, 71, 73, 75, 78, 80, 82, 85, 87, 89, 92, 94, 96, 99, 101, 103,
    105, 108, 110, 112, 115, 117, 119, 122, 124, 126, 128, 128, 128, 128, 128, 128, 128, 128}};
// clang-format on

// |a - b| of any two times: the unsigned difference cannot overflow.
constexpr std::uint64_t time_gap(std::int64_t a, std::int64_t b) {
  const auto x = static_cast<std::uint64_t>(a);
  const auto y = static_cast<std::uint64_t>(b);
  return a > b ? x - y : y - x;
}

constexpr int time_bucket_of_gap(std::uint64_t gap) {
  int bucket = kTimeBucketTable.first_bucket[std::bit_width(gap)];
  while (bucket < kTimeBuckets - 1 && gap >= kTimeBucketTable.first_gap[bucket + 1]) ++bucket;
  return bucket;
}

constexpr int time_bucket(std::int64_t query_time, std::int64_t key_time) {
  return time_bucket_of_gap(time_gap(query_time, key_time));
}

}  // namespace turbogr::ops
