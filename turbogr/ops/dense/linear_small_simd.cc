#include "turbogr/ops/dense/linear_small_simd.h"

#include "turbogr/ops/dense/row_walk_simd.h"

// Sums stay in registers over the whole depth: a block of rows by a few vectors of columns.

namespace turbogr::TGR_SIMD {
namespace {

using Matrix = SmallProducts::Matrix;
using ConstMatrix = SmallProducts::ConstMatrix;

// Rows of a block of kVectors vectors: 24 sums of AVX-512's 32 registers, 12 of 16 elsewhere.
constexpr int kMostVectors = kLanes == 16 ? 4 : 3;
constexpr int kSums = kLanes == 16 ? 24 : 12;
template <int kVectors>
constexpr int kBlockRows = kSums / kVectors < 12 ? kSums / kVectors : 12;

// sums = a b: a's element (r, k) is at r * a_row + k * a_depth. The last vector of b has
// `last_lanes` columns.
struct BlockOf {
  std::int64_t depth;
  const float* a;
  std::int64_t a_row, a_depth;
  const float* b;
  std::int64_t b_depth;
};

template <int kRows, int kVectors, class LastLanes>
inline void block_sums(BlockOf of, LastLanes last, Floats (&sums)[kRows][kVectors]) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[r][v] = Floats{};
  }
  for (std::int64_t k = of.depth; k > 0; --k) {
    Floats right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v + 1 < kVectors; ++v) right[v] = load(of.b + v * kLanes);
    right[kVectors - 1] = last.load(of.b + (kVectors - 1) * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Floats left = splat(of.a[r * of.a_row]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] += left * right[v];
    }
    of.a += of.a_depth;
    of.b += of.b_depth;
  }
}

template <int kValue>
struct Int {
  static constexpr int value = kValue;
};

// Calls body(Int<vectors>, first column) for blocks of columns.
template <class Body>
inline void over_columns(std::int64_t cols, Body&& body) {
  std::int64_t vectors = (cols + kLanes - 1) / kLanes;
  std::int64_t c = 0;
  const auto take = [&](auto count) {
    body(count, c);
    c += count.value * kLanes;
    return std::int64_t{count.value};
  };
  while (vectors > kMostVectors + 1) vectors -= take(Int<kMostVectors>{});
  // What is left goes in equal parts.
  if (vectors == kMostVectors + 1) vectors -= take(Int<(kMostVectors + 1) / 2>{});
  while (vectors > 0) {
    if (vectors >= 4 && kMostVectors >= 4) {
      vectors -= take(Int<kMostVectors>{});
    } else if (vectors >= 3) {
      vectors -= take(Int<3>{});
    } else if (vectors == 2) {
      vectors -= take(Int<2>{});
    } else {
      vectors -= take(Int<1>{});
    }
  }
}

// Calls body(Int<rows>, first row) for blocks of rows.
template <int kVectors, class Body>
inline void over_block_rows(std::int64_t rows, Body&& body) {
  constexpr int kRows = kBlockRows<kVectors>;
  std::int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) body(Int<kRows>{}, r);
  for (; r + 2 <= rows; r += 2) body(Int<2>{}, r);
  if (r < rows) body(Int<1>{}, r);
}

// A block of sums on its way out, at (row, col); `cols` of its columns are there.
__attribute__((noinline)) void finish_block(const SmallProducts::Finish& f, const float* sums,
                                            int rows, int stride, std::int64_t row,
                                            std::int64_t col, std::int64_t cols) {
  const float* bias = f.bias == nullptr ? nullptr : f.bias + col;
  for (int r = 0; r < rows; ++r) {
    const float* in = sums + r * stride;
    const float* residual = f.residual.data == nullptr
                                ? nullptr
                                : f.residual.data + (row + r) * f.residual.stride + col;
    float* y = f.y.data + (row + r) * f.y.stride + col;
    float* z = f.z.data == nullptr ? nullptr : f.z.data + (row + r) * f.z.stride + col;
    over_row(cols, [&](auto lanes, std::int64_t c) {
      Floats v = load(in + c);
      if (bias != nullptr) v += lanes.load(bias + c);
      if (z != nullptr) lanes.store(z + c, v);
      if (f.silu) v = silu(v);
      if (residual != nullptr) v += lanes.load(residual + c);
      lanes.store(y + c, v);
    });
  }
}

void forward(std::int64_t rows, std::int64_t inputs, std::int64_t outputs, ConstMatrix x,
             const float* weight, const SmallProducts::Finish& finish) {
  const std::int64_t padded = (outputs + kSmallWeightPad - 1) / kSmallWeightPad * kSmallWeightPad;
  over_columns(outputs, [&](auto vectors, std::int64_t col) {
    constexpr int kVectors = decltype(vectors)::value;
    const std::int64_t cols = outputs - col < kVectors * kLanes ? outputs - col : kVectors * kLanes;
    over_block_rows<kVectors>(rows, [&](auto block, std::int64_t row) {
      constexpr int kRows = decltype(block)::value;
      Floats sums[kRows][kVectors];
      block_sums<kRows, kVectors>(
          {inputs, x.data + row * x.stride, x.stride, 1, weight + col, padded}, WholeLanes{}, sums);
      finish_block(finish, reinterpret_cast<const float*>(sums), kRows, kVectors * kLanes, row, col,
                   cols);
    });
  });
}

template <int kVectors, class LastLanes>
inline void gradient_columns(std::int64_t rows, std::int64_t inputs, std::int64_t outputs,
                             ConstMatrix x, const float* dz, std::int64_t dz_stride, bool add,
                             LastLanes last, float* dw) {
  over_block_rows<kVectors>(inputs, [&](auto block, std::int64_t row) {
    constexpr int kRows = decltype(block)::value;
    Floats sums[kRows][kVectors];
    block_sums<kRows, kVectors>({rows, x.data + row, 1, x.stride, dz, dz_stride}, last, sums);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      float* out = dw + (row + r) * outputs;
#pragma GCC unroll 4
      for (int v = 0; v + 1 < kVectors; ++v) {
        if (add) sums[r][v] += load(out + v * kLanes);
        store(out + v * kLanes, sums[r][v]);
      }
      out += (kVectors - 1) * kLanes;
      if (add) sums[r][kVectors - 1] += last.load(out);
      last.store(out, sums[r][kVectors - 1]);
    }
  });
}

void gradient(std::int64_t rows, std::int64_t inputs, std::int64_t outputs, ConstMatrix x,
              ConstMatrix dz, bool add, float* dw) {
  over_columns(outputs, [&](auto vectors, std::int64_t col) {
    constexpr int kVectors = decltype(vectors)::value;
    const std::int64_t last = outputs - col - (kVectors - 1) * kLanes;
    if (last >= kLanes) {
      gradient_columns<kVectors>(rows, inputs, outputs, x, dz.data + col, dz.stride, add,
                                 WholeLanes{}, dw + col);
    } else {
      gradient_columns<kVectors>(rows, inputs, outputs, x, dz.data + col, dz.stride, add,
                                 FirstLanes{last}, dw + col);
    }
  });
}

constexpr SmallProducts kTable = {forward, gradient};

}  // namespace

const SmallProducts& small_products() { return kTable; }

}  // namespace turbogr::TGR_SIMD
