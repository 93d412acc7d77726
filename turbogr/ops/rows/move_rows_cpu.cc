#include <cstring>
#include <type_traits>

#include "turbogr/ops/rows/move_rows_kernels.h"
#include "turbogr/ops/rows/row_simd.h"

namespace turbogr::ops::kernels {
namespace {

template <class From, class To>
void move_one_row(SimdLevel simd, const From* from, std::int64_t width, To* to) {
  if constexpr (std::is_same_v<From, To>) {
    std::memcpy(static_cast<void*>(to), from, static_cast<std::size_t>(width) * sizeof(To));
  } else if constexpr (std::is_same_v<To, float>) {
    row_kernels<From>(simd).widen(from, 1.0f, width, to);
  } else if constexpr (std::is_same_v<From, float>) {
    row_kernels<To>(simd).narrow(from, 1.0f, width, to);
  } else {
    for (std::int64_t c = 0; c < width; ++c) to[c] = convert<To>(from[c]);
  }
}

}  // namespace

template <class From, class To, class Index>
void move_rows(Cpu cpu, Rows<const From> from, View<const Index, 1> from_places, Rows<To> to,
               View<const std::int32_t, 1> to_places) {
  constexpr std::int64_t kAhead = 4;  // rows: far enough to hide memory, near enough to stay in L1
  const std::int64_t count = from_places.shape[0];
  const auto bytes = static_cast<std::size_t>(from.cols) * sizeof(From);
  parallel_ranges(cpu.pool, count, 256, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) {
        const auto* ahead = reinterpret_cast<const std::byte*>(from.row(from_places(i + kAhead)));
        for (std::size_t b = 0; b < bytes; b += 64) __builtin_prefetch(ahead + b);
      }
      move_one_row(cpu.simd, from.row(from_places(i)), from.cols, to.row(to_places(i)));
    }
  });
}

TGR_INSTANTIATE_MOVE_ROWS(Cpu)

}  // namespace turbogr::ops::kernels
