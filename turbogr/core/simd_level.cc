#include "turbogr/core/simd_level.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "turbogr/core/check.h"

namespace turbogr {

namespace {

SimdLevel machine_level() {
#ifdef __x86_64__
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (avx512 && __builtin_cpu_supports("avx512bf16")) return SimdLevel::kAvx512Bf16;
  if (avx512) return SimdLevel::kAvx512;
  if (avx2) return SimdLevel::kAvx2;
#endif
  return SimdLevel::kPortable;
}

// TGR_SIMD=avx2: as if the machine had no more.
SimdLevel asked_level() {
  const char* const asked = std::getenv("TGR_SIMD");
  if (asked == nullptr || *asked == 0) return SimdLevel::kAvx512Bf16;
  for (int level = 0; level <= static_cast<int>(SimdLevel::kAvx512Bf16); ++level) {
    if (name_of(static_cast<SimdLevel>(level)) == asked) return static_cast<SimdLevel>(level);
  }
  detail::throw_error("the environment's TGR_SIMD is '", asked,
                      "'; use portable, avx2, avx512 or avx512bf16, or unset it");
}

}  // namespace

SimdLevel best_simd_level() {
  static const SimdLevel level = std::min(machine_level(), asked_level());
  return level;
}

std::string_view name_of(SimdLevel level) {
  switch (level) {
    case SimdLevel::kAvx512Bf16:
      return "avx512bf16";
    case SimdLevel::kAvx512:
      return "avx512";
    case SimdLevel::kAvx2:
      return "avx2";
    default:
      return "portable";
  }
}

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) {
      const std::size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return "unknown";
}

}  // namespace turbogr
