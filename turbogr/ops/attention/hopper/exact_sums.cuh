// Sums of floats that come out the same in whatever order their terms arrive: a term is added as an
// integer to one of many words, each for eight neighbouring powers of two, so that nothing is
// rounded before the end. A word has room for 2^32 terms.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace turbogr::cuda {

inline constexpr int kExactPlaces = 8;  // powers of two a word
inline constexpr int kExactWords =
    33;  // all exponents of a float; the last counts what is not finite

// A table of sums, in several copies where many add to the same few: those are summed at the end.
struct ExactSums {
  unsigned long long* words;  // [kExactWords, copies, size], zero before
  int size;
  int copies;

  static constexpr std::size_t bytes(std::size_t size, std::size_t copies) {
    return kExactWords * copies * size * sizeof(unsigned long long);
  }

  __device__ __forceinline__ void add(int copy, int at, float x) const {
    const std::uint32_t bits = __float_as_uint(x);
    const int field = static_cast<int>(bits >> 23 & 255);
    const int exponent = max(field, 1);
    std::uint32_t digits = (bits & 0x7fffffu) | (field > 0 ? 0x800000u : 0u);
    if (digits == 0) return;
    long long term = static_cast<long long>(digits) << exponent % kExactPlaces;
    int word = exponent / kExactPlaces;
    if (field == 255) {
      term = 1;
      word = kExactWords - 1;
    } else if (bits >> 31 != 0) {
      term = -term;
    }
    atomicAdd(words + (word * copies + copy) * size + at, static_cast<unsigned long long>(term));
  }
};

// to[direction * i] += scale * sum i.
void launch_add_exact_sums(const ExactSums& sums, float scale, float* to, int direction,
                           cudaStream_t stream);

}  // namespace turbogr::cuda
