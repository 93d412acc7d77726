// Matrices in eight bits and their products on a GPU: the CPU's numbers, and sums against double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/support/fp8_codes.h"
#include "tests/support/on_device.h"
#include "turbogr/ops/dense/fp8_linear.h"
#include "turbogr/ops/dense/gated_norm.h"
#include "turbogr/ops/dense/norm.h"
#include "turbogr/ops/dense/swiglu.h"

namespace turbogr::ops {
namespace {

using test::Placed;

Fp8Scale* scale_in(Tensor& memory) { return reinterpret_cast<Fp8Scale*>(memory.data()); }
Tensor scale_memory(Device device) {
  return Tensor(DType::kU8, {static_cast<std::int64_t>(sizeof(Fp8Scale))}, device);
}

// A matrix quantised on a GPU, twice, so that the second time has its own scale; and on the CPU.
struct BothWays {
  std::int64_t rows, cols;
  Tensor by_row, by_column, scale, values;
  Fp8Rows<bf16> gpu;

  BothWays(const Context& ctx, const Tensor& x, Fp8Format format)
      : rows(x.shape()[0]),
        cols(x.shape()[1]),
        by_row(DType::kU8, {rows, cols}, Device::kCuda),
        by_column(DType::kU8, {cols, fp8_padded(rows)}, Device::kCuda),
        scale(scale_memory(Device::kCuda)),
        values(DType::kBf16, {rows, cols}) {
    const Placed<bf16> placed(ctx, x, test::kAligned);
    gpu = {.format = format, .rows = rows, .cols = cols, .scale = scale_in(scale)};
    quantise<bf16>(ctx, placed.rows(), gpu);
    gpu.by_row = by_row.view<std::uint8_t, 2>().data;
    gpu.by_column = by_column.view<std::uint8_t, 2>().data;
    quantise<bf16>(ctx, placed.rows(), gpu);
    synchronize(ctx);

    const Context host({.threads = 2});
    Tensor host_scale = scale_memory(Device::kCpu);
    Fp8Rows<bf16> cpu = {
        .format = format, .rows = rows, .cols = cols, .scale = scale_in(host_scale)};
    quantise<bf16>(host, x.view<bf16, 2>(), cpu);
    cpu.values = values.view<bf16, 2>().data;
    quantise<bf16>(host, x.view<bf16, 2>(), cpu);
    Tensor got = to_host(ctx, scale);
    EXPECT_EQ(scale_in(got)->inverse, scale_in(host_scale)->inverse);
    EXPECT_EQ(scale_in(got)->largest, scale_in(host_scale)->largest);
    EXPECT_EQ(scale_in(got)->seen, 0u);
    EXPECT_EQ(scale_in(got)->parts, 0u);
    inverse = scale_in(got)->inverse;
  }
  float inverse = 0;
};

TEST(CudaFp8, QuantisesAsTheCpuDoesInBothLayouts) {
  TGR_SKIP_WITHOUT_GPU();
  const Context ctx({.device = Device::kCuda});
  for (const Fp8Format format : {Fp8Format::kE4m3, Fp8Format::kE5m2}) {
    for (const std::int64_t rows : {1, 7, 128, 300, 1025}) {
      for (const std::int64_t cols : {8, 16, 136, 512}) {
        SCOPED_TRACE(::testing::Message() << rows << "x" << cols);
        const Tensor x = test::random_tensor<bf16>({rows, cols}, 1, 1e-5);
        const BothWays q(ctx, x, format);
        const Tensor by_row = to_host(ctx, q.by_row), by_column = to_host(ctx, q.by_column);
        const auto row_codes = by_row.view<std::uint8_t, 2>();
        const auto column_codes = by_column.view<std::uint8_t, 2>();
        std::int64_t wrong = 0;
        for (std::int64_t c = 0; c < cols; ++c) {
          for (std::int64_t r = 0; r < rows; ++r) {
            const double want = test::element(q.values, r * cols + c);
            wrong += test::fp8_value(format, row_codes(r, c)) * q.inverse != want ? 1 : 0;
            wrong += test::fp8_value(format, column_codes(c, r)) * q.inverse != want ? 1 : 0;
          }
          for (std::int64_t r = rows; r < fp8_padded(rows); ++r) {
            wrong += column_codes(c, r) != 0 ? 1 : 0;
          }
        }
        EXPECT_EQ(wrong, 0);
      }
    }
  }
}

TEST(CudaFp8, NumbersThatAreNotFiniteLeaveTheScaleAsItWas) {
  TGR_SKIP_WITHOUT_GPU();
  const Context ctx({.device = Device::kCuda});
  for (const float bad : {NAN, INFINITY}) {
    Tensor x = test::random_tensor<bf16>({500, 64}, 1);
    Tensor placed = test::place(ctx, x);
    Tensor memory = scale_memory(Device::kCuda);
    const Fp8Rows<bf16> alone = {.rows = 500, .cols = 64, .scale = scale_in(memory)};
    quantise<bf16>(ctx, placed.view<bf16, 2>(), alone);
    Tensor first = to_host(ctx, memory);
    x.view<bf16, 2>()(333, 33) = bf16(bad);
    placed = test::place(ctx, x);
    quantise<bf16>(ctx, placed.view<bf16, 2>(), alone);
    Tensor second = to_host(ctx, memory);
    EXPECT_EQ(scale_in(second)->largest, scale_in(first)->largest);
    EXPECT_GT(scale_in(first)->largest, 0);
  }
}

// A matrix in eight bits with memory of its own.
struct Fp8Memory {
  Tensor by_row, by_column, scale;

  Fp8Memory(std::int64_t rows, std::int64_t cols)
      : by_row(DType::kU8, {rows, cols}, Device::kCuda),
        by_column(DType::kU8, {cols, fp8_padded(rows)}, Device::kCuda),
        scale(scale_memory(Device::kCuda)) {}
  Fp8Rows<bf16> rows() {
    return {.rows = by_row.shape()[0],
            .cols = by_row.shape()[1],
            .by_row = by_row.view<std::uint8_t, 2>().data,
            .by_column = by_column.view<std::uint8_t, 2>().data,
            .scale = scale_in(scale)};
  }
};

// make(y, y8) writes a matrix to y, or with a scale to y8.
template <class Make>
void expect_as_quantised(const Context& ctx, std::int64_t rows, std::int64_t cols, Make&& make) {
  SCOPED_TRACE(::testing::Message() << rows << "x" << cols);
  Tensor y(DType::kBf16, {rows, cols}, Device::kCuda);
  Fp8Memory after(rows, cols), straight(rows, cols);
  make(y.view<bf16, 2>(), Fp8Rows<bf16>{});
  Fp8Rows<bf16> alone = after.rows();
  alone.by_row = alone.by_column = nullptr;
  quantise<bf16>(ctx, y.view<bf16, 2>(), alone);
  copy_bytes(ctx, straight.scale.data(), after.scale.data(), after.scale.bytes());
  quantise<bf16>(ctx, y.view<bf16, 2>(), after.rows());
  make(y.view<bf16, 2>(), straight.rows());
  EXPECT_EQ(test::vector_of<std::uint8_t>(ctx, straight.by_row),
            test::vector_of<std::uint8_t>(ctx, after.by_row));
  EXPECT_EQ(test::vector_of<std::uint8_t>(ctx, straight.by_column),
            test::vector_of<std::uint8_t>(ctx, after.by_column));
  EXPECT_EQ(test::vector_of<std::uint8_t>(ctx, straight.scale),
            test::vector_of<std::uint8_t>(ctx, after.scale));
}

// Widths with a kernel that stores eight bits, and without one.
TEST(CudaFp8, WhatMakesAMatrixQuantisesItAsQuantiseWould) {
  TGR_SKIP_WITHOUT_GPU();
  const Context ctx({.device = Device::kCuda});
  for (const std::int64_t width : {1024, 2048, 48}) {
    for (const std::int64_t rows : {1, 5, 300}) {
      const Tensor x = test::place(ctx, test::random_tensor<bf16>({rows, width}, 1, 3));
      const Tensor gate = test::place(ctx, test::random_tensor<bf16>({rows, width}, 2, 2));
      const Tensor dy = test::place(ctx, test::random_tensor<bf16>({rows, width}, 3, 1e-6));
      Tensor mean(DType::kF32, {rows}, Device::kCuda), rstd(DType::kF32, {rows}, Device::kCuda);
      const NormStatistics<float> statistics = {mean.view<float, 1>(), rstd.view<float, 1>()};
      const Rows<const bf16> a = x.view<bf16, 2>(), b = gate.view<bf16, 2>();
      for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
        expect_as_quantised(ctx, rows, width, [&](Rows<bf16> y, const Fp8Rows<bf16>& y8) {
          norm<bf16>(ctx, a, {.kind = kind}, y, statistics, y8);
        });
      }
      for (const bool concat : {false, true}) {
        expect_as_quantised(ctx, rows, concat ? 3 * width : width,
                            [&](Rows<bf16> y, const Fp8Rows<bf16>& y8) {
                              gated_norm<bf16>(ctx, a, b,
                                               {.concat = concat,
                                                .silu_gate = true,
                                                .dropout = {.rate = 0.2, .seed = 5, .site = 7}},
                                               y, statistics, y8);
                            });
      }
      expect_as_quantised(ctx, rows, width, [&](Rows<bf16> y, const Fp8Rows<bf16>& y8) {
        swiglu<bf16>(ctx, a, b, y, y8);
      });
      expect_as_quantised(ctx, rows, 2 * width, [&](Rows<bf16> y, const Fp8Rows<bf16>& y8) {
        swiglu_backward<bf16>(ctx, a, b, dy.view<bf16, 2>(), y.columns(0, width),
                              y.columns(width, width), y8);
      });
    }
  }
}

// Against double over the rounded matrices. What is rounded to bf16 may be off by half a unit of
// it, and twice that where two are near; Hopper adds the first terms of any sum of such products in
// some 14 bits.
TEST(CudaFp8, MultipliesTheRoundedMatrices) {
  TGR_SKIP_WITHOUT_GPU();
  const Context ctx({.device = Device::kCuda});
  constexpr std::int64_t kInputs = 64, kOutputs = 48;
  for (const std::int64_t rows : {1, 30, 333, 1000}) {
    SCOPED_TRACE(rows);
    const BothWays x(ctx, test::random_tensor<bf16>({rows, kInputs}, 1), Fp8Format::kE4m3);
    const BothWays w(ctx, test::random_tensor<bf16>({kInputs, kOutputs}, 2, 0.3), Fp8Format::kE4m3);
    const BothWays dz(ctx, test::random_tensor<bf16>({rows, kOutputs}, 3, 1e-6), Fp8Format::kE5m2);
    const Tensor bias = test::random_tensor<float>({kOutputs}, 4);
    const Tensor residual = test::random_tensor<bf16>({rows, kOutputs}, 5);
    const Tensor start = test::random_tensor<float>({kInputs, kOutputs}, 6, 1e-6);
    PackedWeight<bf16> packed(ctx, kInputs, kOutputs);
    ctx.workspace().reserve(std::max(linear_workspace_bytes(ctx, packed),
                                     linear_backward_workspace_bytes(ctx, packed, rows)));
    const Tensor bias_there = test::place(ctx, bias);
    const Placed<bf16> residual_there(ctx, residual, test::kAligned);
    Placed<bf16> y(ctx, rows, kOutputs, test::kAligned), dx(ctx, rows, kInputs, test::kAligned);
    Tensor dw = test::place(ctx, start);
    const Fp8Weight<bf16> weight = {w.gpu};
    fp8_linear<bf16>(ctx, x.gpu, weight,
                     {.bias = bias_there.view<float, 1>(), .residual = residual_there.rows()},
                     y.rows());
    fp8_linear_backward<bf16>(ctx, x.gpu, weight, dz.gpu,
                              {.dx = dx.rows(), .dw = dw.view<float, 2>()});
    const auto at = [](const Tensor& t, std::int64_t r, std::int64_t c) {
      return test::element(t, r * t.shape()[1] + c);
    };
    Tensor want_y(DType::kF64, {rows, kOutputs}), want_dx(DType::kF64, {rows, kInputs}),
        want_dw(DType::kF64, {kInputs, kOutputs});
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t n = 0; n < kOutputs; ++n) {
        double sum = test::element(bias, n) + at(residual, r, n);
        for (std::int64_t k = 0; k < kInputs; ++k) sum += at(x.values, r, k) * at(w.values, k, n);
        want_y.view<double, 2>()(r, n) = sum;
      }
      for (std::int64_t k = 0; k < kInputs; ++k) {
        double sum = 0;
        for (std::int64_t n = 0; n < kOutputs; ++n) sum += at(dz.values, r, n) * at(w.values, k, n);
        want_dx.view<double, 2>()(r, k) = sum;
      }
    }
    for (std::int64_t k = 0; k < kInputs; ++k) {
      for (std::int64_t n = 0; n < kOutputs; ++n) {
        double sum = at(start, k, n);
        for (std::int64_t r = 0; r < rows; ++r) sum += at(x.values, r, k) * at(dz.values, r, n);
        want_dw.view<double, 2>()(k, n) = sum;
      }
    }
    const auto relative = [](const Tensor& got, const Tensor& want) {
      return test::max_error(got, want) / test::max_magnitude(want);
    };
    EXPECT_LT(relative(y.fetch(ctx), want_y), 0x1p-8);
    EXPECT_LT(relative(dx.fetch(ctx), want_dx), 0x1p-8);
    EXPECT_LT(relative(to_host(ctx, dw), want_dw), 0x1p-12);
  }
}

}  // namespace
}  // namespace turbogr::ops
