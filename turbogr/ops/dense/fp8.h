// Matrices in eight bits for the products of training: e4m3 (three bits of fraction, up to 448) or
// e5m2 (two, up to 57,344), with one power of two as the scale of a whole matrix. Numbers beyond
// the largest become the largest. A product of two such matrices is summed in f32, and scaling by a
// power of two is exact, so on a CPU a quantised matrix is T's own numbers, rounded: what a GPU
// computes from the eight bits is what a CPU computes from these.
//
// The scale is delayed: it follows from the largest magnitude of the matrix that was quantised
// before in the same place, so that one pass rounds this one and looks at it for the next.
//
//   quantise<bf16>(ctx, x, {.format = Fp8Format::kE4m3, ..., .scale = scale});
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/host_device.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

enum class Fp8Format : std::uint8_t { kE4m3, kE5m2 };

// In the device's memory; starts as zeros. The products' library wants the factor at 16 bytes.
struct alignas(16) Fp8Scale {
  float inverse;        // what the eight bits are multiplied by
  float largest;        // magnitude of the matrix before
  std::uint32_t seen;   // of this one, so far: magnitude_bits
  std::uint32_t parts;  // of this matrix that are done
};

// Grows with the magnitude; that of a NaN is above all.
TGR_HD inline std::uint32_t magnitude_bits(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
}

// The power of two that brings `largest` into the uppermost octaves and leaves room for a matrix
// with numbers 3.5 times as large.
TGR_HD inline float fp8_scale(Fp8Format format, float largest) {
  const auto exponent = static_cast<int>(std::bit_cast<std::uint32_t>(largest) >> 23) - 127;
  const int top = format == Fp8Format::kE4m3 ? 6 : 13;
  const int wanted = largest > 0 ? top - exponent : 0;
  const int held = wanted < -100 ? -100 : wanted > 100 ? 100 : wanted;
  return std::bit_cast<float>(static_cast<std::uint32_t>(held + 127) << 23);
}

// To the nearest, ties to even. A NaN stays one.
float round_to_fp8(Fp8Format format, float value);

// A quantised matrix [rows, cols]; the layouts that are null are not made.
template <class T>
struct Fp8Rows {
  Fp8Format format = Fp8Format::kE4m3;
  std::int64_t rows = 0, cols = 0;
  T* values = nullptr;                // CPU: [rows, cols]
  std::uint8_t* by_row = nullptr;     // GPU: [rows, cols]
  std::uint8_t* by_column = nullptr;  // GPU: [cols, fp8_padded(rows)], ending in zeros
  Fp8Scale* scale = nullptr;
};

// Sums over tokens go over this many of them: the products want whole words, and alike for all
// batches.
TGR_HD constexpr std::int64_t fp8_padded(std::int64_t rows) { return (rows + 255) / 256 * 256; }

// Throws where the device has no products of such matrices.
void check_fp8(const Context& ctx);

// out has the shape of x. Without any layout only the scale is made ready, from x itself: for the
// first matrix in a place. A GPU has bf16 and wants columns by eights, aligned to 16 bytes.
template <class T>
void quantise(const Context& ctx, Rows<const T> x, const Fp8Rows<T>& out);

}  // namespace turbogr::ops
