#include "bench/gpu_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "turbogr/core/device_memory.h"
#include "turbogr/ops/dense/convert.h"
#include "turbogr/ops/dense/fp8_linear.h"
#include "turbogr/ops/rows/random_rows.h"

namespace turbogr::bench {
namespace {

constexpr std::int64_t kTokens = 65'536;

// Mean over `ms` milliseconds behind a third of that: clocks sink under load.
template <class Body>
double sustained_ms(const Context& ctx, Body&& body, double ms = 120) {
  const auto timed = [&](int times) {
    Event begin(ctx, true), end(ctx, true);
    begin.record(ctx);
    for (int i = 0; i < times; ++i) body();
    end.record(ctx);
    end.wait();
    return end.ms_since(begin) / times;
  };
  timed(2);  // algorithms are chosen
  const int times = std::max(3, static_cast<int>(ms / timed(3)));
  timed(times / 3 + 1);
  return timed(times);
}

Tensor normal_bf16(const Context& ctx, std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Tensor values(DType::kF32, {rows, cols}, ctx.device());
  ops::random_rows(ctx, values.view<float, 2>(), 0, seed, 1.0);
  Tensor out(DType::kBf16, {rows, cols}, ctx.device());
  ops::convert_values<bf16, float>(ctx, {values.view<float, 2>().data, {rows * cols}},
                                   {out.view<bf16, 2>().data, {rows * cols}});
  synchronize(ctx);
  return out;
}

struct Quantised {
  Tensor by_row, by_column, scale;
  ops::Fp8Rows<bf16> rows;

  Quantised(const Context& ctx, const Tensor& x, ops::Fp8Format format)
      : by_row(DType::kU8, x.shape(), ctx.device()),
        by_column(DType::kU8, {x.shape()[1], ops::fp8_padded(x.shape()[0])}, ctx.device()),
        scale(DType::kU8, {static_cast<std::int64_t>(sizeof(ops::Fp8Scale))}, ctx.device()),
        rows{.format = format,
             .rows = x.shape()[0],
             .cols = x.shape()[1],
             .by_row = by_row.view<std::uint8_t, 2>().data,
             .by_column = by_column.view<std::uint8_t, 2>().data,
             .scale = reinterpret_cast<ops::Fp8Scale*>(scale.data())} {
    for (int i = 0; i < 2; ++i) ops::quantise<bf16>(ctx, x.view<bf16, 2>(), rows);
  }
};

void time_weight(const Context& ctx, const char* name, std::int64_t inputs, std::int64_t outputs) {
  const Tensor x = normal_bf16(ctx, kTokens, inputs, 1), w = normal_bf16(ctx, inputs, outputs, 2),
               dy = normal_bf16(ctx, kTokens, outputs, 3);
  Tensor y(DType::kBf16, {kTokens, outputs}, ctx.device());
  Tensor dx(DType::kBf16, {kTokens, inputs}, ctx.device());
  Tensor dw(DType::kF32, {inputs, outputs}, ctx.device());
  ops::PackedWeight<bf16> packed(ctx, inputs, outputs);
  packed.pack(ctx, w.view<bf16, 2>());
  ctx.workspace().reserve(std::max(ops::linear_workspace_bytes(ctx, packed),
                                   ops::linear_backward_workspace_bytes(ctx, packed, kTokens)));
  const Quantised x8(ctx, x, ops::Fp8Format::kE4m3), w8(ctx, w, ops::Fp8Format::kE4m3),
      dy8(ctx, dy, ops::Fp8Format::kE5m2);
  const ops::Fp8Weight<bf16> weight = {w8.rows};
  const ops::LinearGradients<bf16> to_input = {.dx = dx.view<bf16, 2>()};
  const ops::LinearGradients<bf16> to_weight = {.dw = dw.view<float, 2>()};
  const auto bf16_backward = [&](const ops::LinearGradients<bf16>& gradients) {
    return sustained_ms(ctx, [&] {
      ops::linear_backward<bf16>(ctx, x.view<bf16, 2>(), packed, dy.view<bf16, 2>(), {}, gradients);
    });
  };
  const auto fp8_backward = [&](const ops::LinearGradients<bf16>& gradients) {
    return sustained_ms(
        ctx, [&] { ops::fp8_linear_backward<bf16>(ctx, x8.rows, weight, dy8.rows, gradients); });
  };
  const double forward = sustained_ms(
      ctx, [&] { ops::linear<bf16>(ctx, x.view<bf16, 2>(), packed, {}, y.view<bf16, 2>()); });
  const double forward8 = sustained_ms(
      ctx, [&] { ops::fp8_linear<bf16>(ctx, x8.rows, weight, {}, y.view<bf16, 2>()); });
  const double dx_ms = bf16_backward(to_input), dw_ms = bf16_backward(to_weight);
  const double dx8_ms = fp8_backward(to_input), dw8_ms = fp8_backward(to_weight);
  const double quantised = sustained_ms(
      ctx, [&] { ops::quantise<bf16>(ctx, dy.view<bf16, 2>(), dy8.rows); }, 30);
  const double tflop = 2e-12 * static_cast<double>(kTokens * inputs * outputs);
  fmt::print("{:<22} {:>4} x {:<4}", name, inputs, outputs);
  for (const auto& [part, wide, narrow] :
       {std::tuple{"forward", forward, forward8}, {"dx", dx_ms, dx8_ms}, {"dw", dw_ms, dw8_ms}}) {
    fmt::print("  {} {:.3f} {:.3f} ms {:4.0f} {:4.0f} TFLOP/s {:.2f}x", part, wide, narrow,
               tflop / wide * 1e3, tflop / narrow * 1e3, wide / narrow);
  }
  fmt::print("  quantise [{}, {}] {:.3f} ms {:.2f} TB/s\n", kTokens, outputs, quantised,
             4e-9 * static_cast<double>(kTokens * outputs) / quantised);
}

}  // namespace

void time_gpu_products() {
  const Context ctx({.device = Device::kCuda});
  fmt::print("products of {} tokens: bf16 and fp8\n", kTokens);
  time_weight(ctx, "HSTU projection", 1024, 4096);
  time_weight(ctx, "output, FuXi's last", 1024, 1024);
  time_weight(ctx, "FuXi projection", 1024, 6144);
  time_weight(ctx, "FuXi output", 3072, 1024);
  time_weight(ctx, "FuXi gates", 1024, 2048);
}

}  // namespace turbogr::bench
