// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): 128 random
// bits as a pure function of a 64-bit key and a 128-bit counter. Whoever asks, in whatever order,
// on whatever thread or rank, gets the same bits for the same place.
#pragma once

#include <array>
#include <cstdint>

#include "turbogr/core/host_device.h"

namespace turbogr {

__extension__ typedef unsigned __int128 WideWord;

TGR_HD inline std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_low,
                                                  std::uint64_t counter_high) {
  auto c0 = static_cast<std::uint32_t>(counter_low);
  auto c1 = static_cast<std::uint32_t>(counter_low >> 32);
  auto c2 = static_cast<std::uint32_t>(counter_high);
  auto c3 = static_cast<std::uint32_t>(counter_high >> 32);
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(product1);
    c3 = static_cast<std::uint32_t>(product0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// Uniform in [0, 1) with 24 bits, and in [0, bound) without modulo bias worth the name (bound <
// 2^32).
TGR_HD inline float uniform_float(std::uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}
TGR_HD inline std::uint64_t uniform_below(std::uint64_t bits, std::uint64_t bound) {
  return static_cast<std::uint64_t>((static_cast<WideWord>(bits) * bound) >> 64);
}

// A sequential stream over one key, for hosts that just want the next number.
class PhiloxStream {
 public:
  explicit PhiloxStream(std::uint64_t seed, std::uint64_t stream = 0)
      : key_(seed), stream_(stream) {}

  std::uint32_t next_u32() {
    if (left_ == 0) {
      block_ = philox(key_, counter_++, stream_);
      left_ = 4;
    }
    return block_[4u - static_cast<unsigned>(left_--)];
  }
  std::uint64_t next_u64() {
    const std::uint64_t high = next_u32();
    return (high << 32) | next_u32();
  }
  double uniform() { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }  // [0, 1)
  double normal();  // mean 0, variance 1
  std::uint64_t below(std::uint64_t bound) { return uniform_below(next_u64(), bound); }

 private:
  std::uint64_t key_;
  std::uint64_t stream_;
  std::uint64_t counter_ = 0;
  std::array<std::uint32_t, 4> block_ = {};
  int left_ = 0;
};

}  // namespace turbogr
