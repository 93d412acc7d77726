// Which instruction set the x_simd.cc kernels use. Found once, carried in Context; tests lower it
// to reach every dispatch branch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace turbogr {

// Each level includes those before it.
enum class SimdLevel : std::uint8_t { kPortable, kAvx2, kAvx512, kAvx512Bf16 };

// What this machine can run, or less when the environment says so (TGR_SIMD=avx2).
SimdLevel best_simd_level();
std::string_view name_of(SimdLevel level);
std::string cpu_model();  // for `doctor` and benchmark headers

}  // namespace turbogr

// Declares `const Table& name(SimdLevel)`'s four suppliers; x_simd.cc defines one of them per
// compilation. A build for another processor has only the portable one.
#ifdef __x86_64__
#define TGR_SIMD_TABLES(Table, name)                     \
  namespace portable {                                   \
  const Table& name();                                   \
  }                                                      \
  namespace avx2 {                                       \
  const Table& name();                                   \
  }                                                      \
  namespace avx512 {                                     \
  const Table& name();                                   \
  }                                                      \
  namespace avx512bf16 {                                 \
  const Table& name();                                   \
  }                                                      \
  inline const Table& name(::turbogr::SimdLevel level) { \
    switch (level) {                                     \
      case ::turbogr::SimdLevel::kAvx512Bf16:            \
        return avx512bf16::name();                       \
      case ::turbogr::SimdLevel::kAvx512:                \
        return avx512::name();                           \
      case ::turbogr::SimdLevel::kAvx2:                  \
        return avx2::name();                             \
      default:                                           \
        return portable::name();                         \
    }                                                    \
  }
#else
#define TGR_SIMD_TABLES(Table, name) \
  namespace portable {               \
  const Table& name();               \
  }                                  \
  inline const Table& name(::turbogr::SimdLevel) { return portable::name(); }
#endif
