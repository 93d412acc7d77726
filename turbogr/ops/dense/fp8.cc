#include "turbogr/ops/dense/fp8.h"

#include <algorithm>
#include <type_traits>

#include "turbogr/ops/checks.h"
#include "turbogr/ops/dense/fp8_kernels.h"

namespace turbogr::ops {

float round_to_fp8(Fp8Format format, float value) {
  const bool e4m3 = format == Fp8Format::kE4m3;
  const int fraction = e4m3 ? 3 : 2, smallest = e4m3 ? -6 : -14;
  const float largest = e4m3 ? 448.0f : 57344.0f;
  const float magnitude = std::abs(value);
  if (std::isnan(value)) return value;
  if (magnitude >= largest) return std::copysign(largest, value);
  const int exponent = magnitude == 0 ? smallest : std::max(std::ilogb(magnitude), smallest);
  const float unit = std::ldexp(1.0f, exponent - fraction);
  return std::copysign(std::min(std::nearbyint(magnitude / unit) * unit, largest), value);
}

void check_fp8(const Context& ctx) {
  if constexpr (kWithCuda) {
    if (ctx.device() != Device::kCuda) return;
    TGR_CHECK(kernels::compute_capability() >= 9, "fp8 products on a GPU of compute capability ",
              kernels::compute_capability(), ".x; they need 9 (Hopper): use bf16");
  }
}

template <class T>
void quantise(const Context& ctx, Rows<const T> x, const Fp8Rows<T>& out) {
  check_rows("quantise", "x", x, out.rows, out.cols);
  TGR_CHECK(out.scale != nullptr, "quantise: no place for the scale; give one in .scale");
  if (x.rows == 0 || x.cols == 0) return;
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  if (ctx.device() == Device::kCpu) {
    return on_cpu(ctx, "quantise", [&](Cpu cpu) { kernels::quantise<T>(cpu, x, out); });
  }
  if constexpr (kWithCuda && std::is_same_v<T, bf16>) {
    TGR_CHECK(
        x.cols % 8 == 0 && x.stride % 8 == 0 && reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0,
        "quantise: rows of ", x.cols, " columns, ", x.stride,
        " apart; on a GPU they must be aligned to 16 bytes");
    on_device(ctx, [&](auto device) {
      if constexpr (std::is_same_v<decltype(device), Cuda>) kernels::quantise(device, x, out);
    });
  } else {
    detail::throw_error("quantise: numbers of ", name_of(dtype_of<T>()),
                        " on a GPU; there it is bf16's");
  }
}

template void quantise<double>(const Context&, Rows<const double>, const Fp8Rows<double>&);
template void quantise<float>(const Context&, Rows<const float>, const Fp8Rows<float>&);
template void quantise<bf16>(const Context&, Rows<const bf16>, const Fp8Rows<bf16>&);

}  // namespace turbogr::ops
