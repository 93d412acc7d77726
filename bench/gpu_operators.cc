#include "bench/gpu_operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "bench/timing.h"
#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/philox.h"
#include "turbogr/ops/dense/convert.h"
#include "turbogr/ops/dense/gated_norm.h"
#include "turbogr/ops/dense/linear.h"
#include "turbogr/ops/dense/norm.h"
#include "turbogr/ops/dense/silu.h"
#include "turbogr/ops/dense/swiglu.h"
#include "turbogr/ops/rows/combine_input.h"
#include "turbogr/ops/rows/embedding.h"
#include "turbogr/ops/rows/random_rows.h"
#include "turbogr/ops/rows/update.h"
#include "turbogr/ops/softmax/sampled_softmax.h"

namespace turbogr::bench {
namespace {

using namespace ops;  // NOLINT(google-build-using-namespace): nothing but operators is called here

// Median of several, after a warm call, in ms; bytes > 0: also GB/s.
template <class Body>
void report(const Context& ctx, const char* name, double bytes, Body&& body, int repeats = 9) {
  body();
  Event begin(ctx, true), end(ctx, true);
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    begin.record(ctx);
    body();
    end.record(ctx);
    end.wait();
    times.push_back(end.ms_since(begin));
  }
  const double ms = summary_of(std::move(times)).ms;
  fmt::print("{:<34} {:9.3f} ms", name, ms);
  if (bytes > 0) fmt::print("  {:7.0f} GB/s", bytes / ms * 1e-6);
  fmt::print("\n");
}

template <class T>
Tensor placed_on(const Context& ctx, std::span<const T> values) {
  Tensor host(dtype_of<T>(), {static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), reinterpret_cast<T*>(host.data()));
  Tensor placed(host.dtype(), host.shape(), ctx.device());
  copy_tensor(ctx, placed, host);
  return placed;
}

// Normal numbers made on the device.
template <class T>
Tensor normal(const Context& ctx, std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Tensor values(DType::kF32, {rows, cols}, ctx.device());
  random_rows(ctx, values.view<float, 2>(), 0, seed, 1.0);
  if constexpr (std::is_same_v<T, float>) return values;
  Tensor out(dtype_of<T>(), {rows, cols}, ctx.device());
  convert_values<T, float>(ctx, {values.view<float, 2>().data, {rows * cols}},
                           {reinterpret_cast<T*>(out.data()), {rows * cols}});
  synchronize(ctx);
  return out;
}

template <class Index>
Tensor random_index(const Context& ctx, std::int64_t count, std::int64_t bound,
                    std::uint64_t seed) {
  std::vector<Index> index(static_cast<std::size_t>(count));
  PhiloxStream random(seed);
  for (Index& i : index) i = static_cast<Index>(random.below(static_cast<std::uint64_t>(bound)));
  return placed_on<Index>(ctx, index);
}

constexpr std::int64_t kN = 65536, kD = 1024;
constexpr double kPass = 2.0 * kN * kD;  // bytes of [N, D] in bf16

void time_rows(const Context& ctx) {
  ctx.workspace().reserve(std::size_t{1} << 30);
  const Tensor x = normal<bf16>(ctx, kN, kD, 1), gate = normal<bf16>(ctx, kN, kD, 2),
               dy = normal<bf16>(ctx, kN, 3 * kD, 3);
  Tensor y(DType::kBf16, {kN, 3 * kD}, Device::kCuda), dx(DType::kBf16, {kN, kD}, Device::kCuda),
      dgate(DType::kBf16, {kN, kD}, Device::kCuda);
  Tensor mean(DType::kF32, {kN}, Device::kCuda), rstd(DType::kF32, {kN}, Device::kCuda);
  const Tensor weight = normal<float>(ctx, 1, kD, 4);
  Tensor dweight(DType::kF32, {kD}, Device::kCuda), dbias(DType::kF32, {kD}, Device::kCuda);
  const View<const float, 1> w = {weight.view<float, 2>().data, {kD}};
  const NormStatistics<float> saved = {mean.view<float, 1>(), rstd.view<float, 1>()};
  const NormStatistics<const float> read = {saved.mean, saved.rstd};
  const auto rows = [](Tensor& t) {
    return Rows<bf16>(reinterpret_cast<bf16*>(t.data()), kN, kD, kD);
  };
  const auto view = [](const Tensor& t) {
    return Rows<const bf16>(reinterpret_cast<const bf16*>(t.data()), kN, kD, kD);
  };
  const DropoutOptions drop = {.rate = 0.2, .seed = 1, .site = 2};
  report(ctx, "copy (device to device)", 2 * kPass,
         [&] { copy_bytes(ctx, y.data(), x.data(), x.bytes()); });
  report(ctx, "dropout", 2 * kPass, [&] { dropout<bf16>(ctx, view(x), drop, rows(dx)); });
  report(ctx, "swiglu", 3 * kPass, [&] { swiglu<bf16>(ctx, view(x), view(gate), rows(dx)); });
  report(ctx, "swiglu backward", 5 * kPass,
         [&] { swiglu_backward<bf16>(ctx, view(x), view(gate), view(dy), rows(dx), rows(dgate)); });
  report(ctx, "layer norm", 2 * kPass, [&] { norm<bf16>(ctx, view(x), {}, rows(dx), saved); });
  report(ctx, "layer norm backward + residual", 4 * kPass, [&] {
    norm_backward<bf16>(ctx, view(x), view(dy), {}, read, {.dx = rows(dx), .residual = view(gate)});
  });
  // What a layer of HSTU does to its projection [U | V | Q | K].
  {
    const Tensor z = normal<bf16>(ctx, kN, 4 * kD, 5);
    Tensor d = normal<bf16>(ctx, kN, 4 * kD, 6);
    const Rows<const bf16> rest = Rows<const bf16>(z.view<bf16, 2>()).columns(kD, 3 * kD);
    const Rows<bf16> drest = Rows<bf16>(d.view<bf16, 2>()).columns(kD, 3 * kD);
    report(ctx, "silu of three parts", 6 * kPass,
           [&] { silu<bf16>(ctx, rest, y.view<bf16, 2>()); });
    report(ctx, "its backward, in place", 9 * kPass,
           [&] { silu_backward<bf16>(ctx, rest, drest, drest); });
  }
  PackedWeight<bf16> packed(ctx, kD, kD);
  packed.pack(ctx, {x.view<bf16, 2>().data, {kD, kD}});
  report(ctx, "gradient of a bias", kPass, [&] {
    linear_backward<bf16>(ctx, view(x), packed, view(dy), {}, {.db = dbias.view<float, 1>()});
  });
  const NormOptions<bf16> rms = {.kind = NormKind::kRms, .weight = w};
  report(ctx, "rms norm, weights", 2 * kPass,
         [&] { norm<bf16>(ctx, view(x), rms, rows(dx), saved); });
  report(ctx, "rms norm backward, weights", 3 * kPass, [&] {
    norm_backward<bf16>(ctx, view(x), view(dy), rms, read,
                        {.dx = rows(dx), .dweight = dweight.view<float, 1>()});
  });
  for (const double rate : {0.0, 0.2}) {
    const GatedNormOptions<bf16> gated = {.silu_gate = true,
                                          .dropout = {.rate = rate, .seed = 1, .site = 2}};
    norm<bf16>(ctx, view(x), {}, rows(dx), saved);
    report(ctx, rate > 0 ? "gated norm, dropout" : "gated norm", 3 * kPass,
           [&] { gated_norm<bf16>(ctx, view(x), view(gate), gated, rows(dx), saved); });
    report(ctx, rate > 0 ? "gated norm backward, dropout" : "gated norm backward", 5 * kPass, [&] {
      gated_norm_backward<bf16>(ctx, view(x), view(gate), view(dy), gated, read,
                                {.dx = rows(dx), .dgate = rows(dgate)});
    });
    GatedNormOptions<bf16> concat = gated;
    concat.concat = true;
    const Rows<bf16> wide = y.view<bf16, 2>();
    report(ctx, rate > 0 ? "gated norm concat, dropout" : "gated norm concat", 5 * kPass,
           [&] { gated_norm<bf16>(ctx, view(x), view(gate), concat, wide, saved); });
    report(ctx, rate > 0 ? "its backward, dropout" : "its backward", 7 * kPass, [&] {
      gated_norm_backward<bf16>(ctx, view(x), view(gate), dy.view<bf16, 2>(), concat, read,
                                {.dx = rows(dx), .dgate = rows(dgate)});
    });
  }
  std::vector<std::int64_t> starts = {0};
  for (std::int64_t i = 0; starts.back() < kN; ++i) {
    starts.push_back(std::min(kN, starts.back() + 100 + (i * 977) % 1900));
  }
  const Tensor offsets = placed_on<std::int64_t>(ctx, starts);
  const Tensor p = normal<bf16>(ctx, 2048, kD, 7);
  Tensor dp(DType::kF32, {2048, kD}, Device::kCuda);
  const CombineInputOptions<bf16> combine = {.scale = 32, .dropout = drop};
  report(ctx, "combine_input, dropout", 2 * kPass, [&] {
    combine_input<bf16>(ctx, {view(x), offsets.view<std::int64_t, 1>()}, p.view<bf16, 2>(), combine,
                        rows(dx));
  });
  report(ctx, "combine_input backward, dropout", 2 * kPass, [&] {
    combine_input_backward<bf16>(ctx, {view(x), offsets.view<std::int64_t, 1>()}, combine,
                                 {.de = rows(dx), .dp = dp.view<float, 2>()});
  });
}

void time_embedding(const Context& ctx) {
  ctx.workspace().reserve(std::size_t{1} << 30);
  constexpr std::int64_t kRows = 1000000, kTouched = 139264;
  Tensor table = normal<float>(ctx, kRows, kD, 1);
  Tensor out(DType::kBf16, {kTouched, kD}, Device::kCuda);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < kTouched; ++i) ids.push_back(i * 7);
  const Tensor placed = placed_on<std::int64_t>(ctx, ids);
  report(ctx, "gather 139,264 rows f32 -> bf16", 6.0 * kTouched * kD, [&] {
    gather_rows<float, bf16>(ctx, table.view<float, 2>(), placed.view<std::int64_t, 1>(),
                             out.view<bf16, 2>());
  });
  const Tensor drows = normal<bf16>(ctx, kN, kD, 2);
  const Tensor tokens = random_index<std::int64_t>(ctx, kN, kTouched, 3);
  Tensor unique(DType::kI64, {kN}, Device::kCuda), offsets(DType::kI64, {kN + 1}, Device::kCuda),
      positions(DType::kI32, {kN}, Device::kCuda), inverse(DType::kI32, {kN}, Device::kCuda);
  const DedupOutput groups = {unique.view<std::int64_t, 1>(), offsets.view<std::int64_t, 1>(),
                              positions.view<std::int32_t, 1>(), inverse.view<std::int32_t, 1>()};
  std::int64_t count = 0;
  report(ctx, "dedup 65,536 ids", 0,
         [&] { count = dedup_ids(ctx, tokens.view<std::int64_t, 1>(), groups); });
  Tensor gradient(DType::kF32, {kTouched, kD}, Device::kCuda);
  report(ctx, "scatter_add 65,536 rows", kPass + 8.0 * static_cast<double>(count * kD), [&] {
    scatter_add_rows<bf16>(ctx, drows.view<bf16, 2>(), groups.first(count),
                           gradient.view<float, 2>());
  });
  Tensor m(DType::kF32, {kRows, kD}, Device::kCuda), v(DType::kF32, {kRows, kD}, Device::kCuda);
  const AdamWSettings settings = {1e-3, 0.9, 0.98, 1e-8, 0, 1, 1};
  report(ctx, "adamw of 139,264 table rows", 28.0 * kTouched * kD, [&] {
    update_rows(ctx, RowOptimiser::kAdamW,
                {.weight = table.view<float, 2>(),
                 .first_moment = m.view<float, 2>(),
                 .second_moment = v.view<float, 2>()},
                placed.view<std::int64_t, 1>(), gradient.view<float, 2>(), settings, nullptr);
  });
  Tensor sum(DType::kF64, {1}, Device::kCuda);
  report(ctx, "squared sum of 139,264 rows", 4.0 * kTouched * kD, [&] {
    squared_sum(ctx, {gradient.view<float, 2>().data, {gradient.size()}},
                sum.view<double, 1>().data);
  });
  const UpdateSlices slices(
      ctx,
      {{reinterpret_cast<float*>(table.data()), reinterpret_cast<float*>(gradient.data()),
        reinterpret_cast<float*>(m.data()), reinterpret_cast<float*>(v.data()), 100000000, 1}});
  report(ctx, "adamw of 100 M dense weights", 2.8e9,
         [&] { adamw(ctx, slices, settings, nullptr); });
}

void time_softmax(const Context& ctx) {
  constexpr std::int64_t kShared = 8192, kOwn = 128, kItems = 500000;
  ctx.workspace().reserve(std::max(softmax_workspace_bytes(ctx, kN, kItems, kD, 0),
                                   softmax_workspace_bytes(ctx, kN, kItems, kD, kOwn)));
  const Tensor query = normal<bf16>(ctx, kN, kD, 1), items = normal<bf16>(ctx, kItems, kD, 2);
  const Tensor positive = random_index<std::int32_t>(ctx, kN, kItems, 3);
  const Tensor shared = random_index<std::int32_t>(ctx, kShared, kItems, 4);
  const Tensor own = random_index<std::int32_t>(ctx, kN * kOwn, kItems, 5);
  Tensor loss(DType::kF32, {kN}, Device::kCuda), lse(DType::kF32, {kN}, Device::kCuda),
      dloss(DType::kF32, {kN}, Device::kCuda), dquery(DType::kBf16, {kN, kD}, Device::kCuda),
      ditems(DType::kF32, {kItems, kD}, Device::kCuda);
  fill<float>(ctx, 1e-4f, dloss.view<float, 1>());
  SampledSoftmaxInputs<bf16> in = {.query = query.view<bf16, 2>(),
                                   .items = items.view<bf16, 2>(),
                                   .positive = positive.view<std::int32_t, 1>()};
  const auto forward = [&] {
    sampled_softmax<bf16>(ctx, in, {}, {loss.view<float, 1>(), lse.view<float, 1>()});
  };
  const auto backward = [&] {
    sampled_softmax_backward<bf16>(ctx, in, {}, std::as_const(lse).view<float, 1>(),
                                   std::as_const(dloss).view<float, 1>(), dquery.view<bf16, 2>(),
                                   ditems.view<float, 2>());
  };
  in.shared_negatives = shared.view<std::int32_t, 1>();
  report(ctx, "softmax, 8192 shared", 0, forward, 5);
  report(ctx, "its backward", 0, backward, 5);
  report(
      ctx, "both at once", 0,
      [&] {
        sampled_softmax_with_gradients<bf16>(ctx, in, {}, std::as_const(dloss).view<float, 1>(),
                                             {loss.view<float, 1>(), lse.view<float, 1>()},
                                             dquery.view<bf16, 2>(), ditems.view<float, 2>());
      },
      5);
  in.shared_negatives = {};
  in.negatives = {own.view<std::int32_t, 1>().data, {kN, kOwn}};
  report(ctx, "softmax, 128 own negatives", 2.0 * kN * (kOwn + 2) * kD, forward, 5);
  report(ctx, "its backward", 4.0 * kN * (kOwn + 2) * kD, backward, 5);
  const Tensor losses = to_host(ctx, loss);
  const float* values = reinterpret_cast<const float*>(losses.data());
  const double mean = std::accumulate(values, values + kN, 0.0) / kN;
  TGR_CHECK(std::abs(mean - 5) < 1.5, "bench gpu-ops: the mean loss over ", kOwn, " negatives is ",
            mean, ", where about 5 was expected; a timing of wrong answers is worth nothing");
}

}  // namespace

void time_gpu_operators() {
  const Context ctx({.device = Device::kCuda});
  time_rows(ctx);
  time_embedding(ctx);
  time_softmax(ctx);
}

}  // namespace turbogr::bench
