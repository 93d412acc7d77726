// The ranking model's operators on a GPU, against a CPU's at the same inputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tests/support/event_case.h"
#include "tests/support/norm_case.h"
#include "tests/support/on_device.h"
#include "tests/support/swish_norm_case.h"
#include "turbogr/ops/attention/target_attention.h"
#include "turbogr/ops/dense/gated_norm.h"
#include "turbogr/ops/dense/row_arithmetic.h"
#include "turbogr/ops/dense/swish_norm.h"
#include "turbogr/ops/loss/task_loss.h"
#include "turbogr/ops/rows/clock_features.h"
#include "turbogr/ops/rows/event_targets.h"
#include "turbogr/ops/rows/weighted_rows.h"

namespace turbogr::ops {
namespace {

using test::EventBatch;
using test::EventCase;
using test::EventInputs;
using test::EventResults;
using test::Margins;
using test::NormCase;
using test::NormInputs;
using test::NormResults;
using test::Placed;
using test::random_tensor;

Margins margins_of(std::int64_t cols) { return cols % 8 == 0 ? test::kAligned : test::kCrooked; }

template <class T>
Tensor tensor_of_words(const std::vector<T>& values) {  // formats that tensors have no name for
  Tensor tensor(DType::kU8, {static_cast<std::int64_t>(values.size() * sizeof(T))});
  std::copy(values.begin(), values.end(), reinterpret_cast<T*>(tensor.data()));
  return tensor;
}

// A batch in the device's memory.
struct PlacedEvents {
  Tensor offsets, num_targets, times, masks;
  std::int64_t prefix;

  PlacedEvents(const Context& ctx, const EventBatch& batch)
      : offsets(test::place(ctx, test::tensor_of(batch.offsets))),
        num_targets(test::place(ctx, test::tensor_of(batch.num_targets))),
        times(test::place(ctx, test::tensor_of(batch.times))),
        masks(test::place(ctx, tensor_of_words(batch.masks))),
        prefix(batch.prefix) {}
  EventSequences view() const {
    return {.offsets = offsets.view<std::int64_t, 1>(),
            .num_prefix = prefix,
            .num_targets = num_targets.view<std::int64_t, 1>(),
            .times = times.view<std::int64_t, 1>()};
  }
  View<const std::uint32_t, 1> mask_view() const {
    return {reinterpret_cast<const std::uint32_t*>(masks.data()), {masks.size() / 4}};
  }
};

template <class T>
class CudaRankingOps : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(CudaRankingOps, Formats);

template <class T>
NormResults gpu_swish_norm(const NormCase& c, const NormInputs<T>& in) {
  using A = Accum<T>;
  Context ctx({.device = Device::kCuda});
  ctx.workspace().reserve(swish_norm_workspace_bytes<T>(ctx, c.cols));
  const Margins margins = margins_of(c.cols);
  const Placed<T> x(ctx, in.x, margins), dy(ctx, in.dy, margins);
  Placed<T> y(ctx, c.rows, c.cols, margins), dx(ctx, c.rows, c.cols, margins);
  const Tensor weight = test::place(ctx, in.weight), bias = test::place(ctx, in.bias);
  Tensor mean(dtype_of<A>(), {c.rows}, ctx.device()), rstd(dtype_of<A>(), {c.rows}, ctx.device());
  Tensor dweight = test::place(ctx, test::norm_start<A>(c.cols));
  Tensor dbias = test::place(ctx, test::norm_start<A>(c.cols));
  const NormOptions<T> options = {
      .eps = test::kSwishEps, .weight = weight.view<A, 1>(), .bias = bias.view<A, 1>()};
  const NormStatistics<A> saved = {mean.view<A, 1>(), rstd.view<A, 1>()};
  swish_norm<T>(ctx, x.rows(), options, y.rows(), saved);
  swish_norm_backward<T>(ctx, x.rows(), dy.rows(), options, {saved.mean, saved.rstd},
                         {dx.rows(), dweight.view<A, 1>(), dbias.view<A, 1>()});
  // dx may be dy.
  Placed<T> both(ctx, in.dy, margins);
  swish_norm_backward<T>(ctx, x.rows(), both.rows(), options, {saved.mean, saved.rstd},
                         {.dx = both.rows()});
  EXPECT_TRUE(test::same_bits(both.fetch(ctx), dx.fetch(ctx)));
  return {y.fetch(ctx), to_host(ctx, mean),    to_host(ctx, rstd), dx.fetch(ctx),
          Tensor(),     to_host(ctx, dweight), to_host(ctx, dbias)};
}

TYPED_TEST(CudaRankingOps, SwishNormMatchesTheDefinition) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 8}, {3, 1}, {5, 7}, {4, 16}, {3, 50}, {9, 256}, {5, 512}, {2, 1024}, {5000, 24}}) {
    SCOPED_TRACE(::testing::Message() << rows << "x" << cols);
    const NormCase c = {.rows = rows, .cols = cols, .kind = NormKind::kLayer, .affine = true};
    const NormInputs<T> in(c);
    const NormResults exact = test::plain_swish_norm<double>(c, in.widened(c));
    const NormResults plain = test::plain_swish_norm<T>(c, in);
    const NormResults fast = gpu_swish_norm<T>(c, in);
    EXPECT_TRUE(test::matches(fast.y, plain.y, exact.y));
    EXPECT_TRUE(test::matches(fast.mean, plain.mean, exact.mean));
    EXPECT_TRUE(test::matches(fast.rstd, plain.rstd, exact.rstd));
    EXPECT_TRUE(test::matches(fast.dx, plain.dx, exact.dx));
    EXPECT_TRUE(test::matches(fast.dweight, plain.dweight, exact.dweight));
    EXPECT_TRUE(test::matches(fast.dbias, plain.dbias, exact.dbias));
  }
}

TYPED_TEST(CudaRankingOps, AddsAndMultipliesAsTheHost) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 8}, {3, 1}, {5, 7}, {150, 64}, {3, 5000}, {7, 4096}}) {
    SCOPED_TRACE(::testing::Message() << rows << "x" << cols);
    const Tensor a = random_tensor<T>({rows, cols}, 1), b = random_tensor<T>({rows, cols}, 2);
    const Tensor dy = random_tensor<T>({rows, cols}, 3);
    std::vector<std::vector<Tensor>> results;
    for (const Device device : {Device::kCpu, Device::kCuda}) {
      const Context ctx({.device = device, .threads = 1});
      const Margins margins = margins_of(cols);
      const Placed<T> left(ctx, a, margins), right(ctx, b, margins), d(ctx, dy, margins);
      Placed<T> sum(ctx, a, margins), product(ctx, rows, cols, margins),
          da(ctx, rows, cols, margins), db(ctx, rows, cols, margins);
      add_rows<T>(ctx, right.rows(), sum.rows());
      multiply_rows<T>(ctx, left.rows(), right.rows(), product.rows());
      multiply_rows_backward<T>(ctx, left.rows(), right.rows(), d.rows(), da.rows(), db.rows());
      std::vector<Tensor>& out = results.emplace_back();
      for (const Placed<T>* each : {&sum, &product, &da, &db}) out.push_back(each->fetch(ctx));
    }
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(test::same_bits(results[1][i], results[0][i])) << i;
    }
  }
}

const std::vector<EventCase>& event_cases() {
  static const DropoutOptions dropout = {.rate = 0.25, .seed = 6, .site = 3};
  static const std::vector<EventCase> cases = {
      {.prefix = 2},  // no sequences
      {.prefix = 0, .history = {0, 0}, .targets = {0, 1}},
      {.prefix = 3, .history = {0, 4, 0}, .targets = {0, 0, 2}, .dropout = dropout},
      {.prefix = 1, .history = {30, 1, 5}, .targets = {1, 3, 2}, .cols = 45, .dropout = dropout},
      {.prefix = 8, .history = {2, 70}, .targets = {1, 1}, .cols = 129, .positions = 9},
      {.prefix = 0, .history = {3}, .targets = {4}, .cols = 1, .positions = 1, .buckets = 0},
      {.prefix = 1,
       .history = {30, 1, 5},
       .targets = {1, 3, 2},
       .cols = 45,
       .buckets = 3,
       .kind = TimeBuckets::kLog},
      {.prefix = 8,
       .history = {900, 0, 1300, 17, 600},
       .targets = {1, 1, 40, 0, 700},
       .cols = 512,
       .positions = 700,
       .buckets = 30,
       .dropout = dropout},
  };
  return cases;
}

template <class T>
EventResults event_input_on(Device device, const EventCase& c, const EventBatch& batch,
                            const EventInputs<T>& in) {
  using A = Accum<T>;
  const Context ctx({.device = device, .threads = 1});
  const Margins margins = margins_of(c.cols);
  const PlacedEvents events(ctx, batch);
  const Placed<T> prefix(ctx, in.prefix, margins), tokens(ctx, in.events, margins),
      dx(ctx, in.dx, margins);
  Placed<T> x(ctx, c.tokens(), c.cols, margins), dprefix(ctx, c.prefix_rows(), c.cols, margins),
      devents(ctx, c.events(), c.cols, margins);
  const Tensor position = test::place(ctx, in.position), time = test::place(ctx, in.time);
  Tensor dposition = test::place(ctx, test::event_start<A>({c.positions, c.cols}));
  Tensor dtime = test::place(ctx, test::event_start<A>({c.buckets + 1, c.cols}));
  const EventInputOptions options = {
      .scale = test::kEventScale, .buckets = c.kind, .dropout = c.dropout};
  ctx.workspace().reserve(event_input_workspace_bytes<T>(ctx, c.tokens() + 1, c.cols));
  event_input<T>(ctx, events.view(), {prefix.rows(), tokens.rows()},
                 {position.view<A, 2>(), time.view<A, 2>()}, options, x.rows());
  event_input_backward<T>(ctx, events.view(), dx.rows(), options, {dprefix.rows(), devents.rows()},
                          {dposition.view<A, 2>(), dtime.view<A, 2>()});
  return {x.fetch(ctx), dprefix.fetch(ctx), devents.fetch(ctx), to_host(ctx, dposition),
          to_host(ctx, dtime)};
}

TYPED_TEST(CudaRankingOps, InputRowsAndTheirGradientsMatchTheDefinition) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  for (const EventCase& c : event_cases()) {
    SCOPED_TRACE(::testing::Message() << c.tokens() << " tokens of " << c.cols);
    const EventBatch batch(c);
    const EventInputs<T> in(c);
    const EventResults exact = test::plain_event_input<double>(c, batch, in.widened(c));
    const EventResults plain = test::plain_event_input<T>(c, batch, in);
    const EventResults fast = event_input_on<T>(Device::kCuda, c, batch, in);
    EXPECT_TRUE(test::matches(fast.x, plain.x, exact.x));
    EXPECT_TRUE(test::matches(fast.dprefix, plain.dprefix, exact.dprefix));
    EXPECT_TRUE(test::matches(fast.devents, plain.devents, exact.devents));
    EXPECT_TRUE(test::matches(fast.dposition, plain.dposition, exact.dposition));
    EXPECT_TRUE(test::matches(fast.dtime, plain.dtime, exact.dtime));
    const EventResults again = event_input_on<T>(Device::kCuda, c, batch, in);
    EXPECT_TRUE(test::same_bits(again.dposition, fast.dposition));
    EXPECT_TRUE(test::same_bits(again.dtime, fast.dtime));
  }
}

TYPED_TEST(CudaRankingOps, ActionBitsMatchTheHost) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  using A = Accum<T>;
  for (const EventCase& c : event_cases()) {
    for (const auto& [bits, width] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 3}, {5, 8}, {32, 3}, {32, 8}, {3, 100}}) {
      SCOPED_TRACE(::testing::Message() << c.events() << " events, " << bits << " of " << width);
      const EventBatch batch(c);
      const std::int64_t cols = bits * width;
      const Tensor table = random_tensor<A>({bits, width}, 1), target = random_tensor<A>({cols}, 2);
      const Tensor drows = random_tensor<T>({c.events(), cols}, 3);
      const auto run = [&]<class R>(R, Device device, const Tensor& blocks, const Tensor& own,
                                    const Tensor& given) {
        using Sum = Accum<R>;
        const Context ctx({.device = device, .threads = 1});
        ctx.workspace().reserve(action_bits_workspace_bytes<R>(ctx, cols));
        const PlacedEvents events(ctx, batch);
        const Placed<R> d(ctx, given, margins_of(cols));
        Placed<R> rows(ctx, c.events(), cols, margins_of(cols));
        const Tensor in_table = test::place(ctx, blocks), in_target = test::place(ctx, own);
        Tensor dtable = test::place(ctx, test::event_start<Sum>(table.shape()));
        Tensor dtarget = test::place(ctx, test::event_start<Sum>(target.shape()));
        action_bits<R>(ctx, events.view(), {in_table.view<Sum, 2>(), in_target.view<Sum, 1>()},
                       events.mask_view(), rows.rows());
        action_bits_backward<R>(ctx, events.view(), events.mask_view(), d.rows(),
                                {dtable.view<Sum, 2>(), dtarget.view<Sum, 1>()});
        return test::ActionResults{rows.fetch(ctx), to_host(ctx, dtable), to_host(ctx, dtarget)};
      };
      const test::ActionResults exact =
          run(double{}, Device::kCpu, test::converted<double, A>(table),
              test::converted<double, A>(target), test::converted<double, T>(drows));
      const test::ActionResults plain = run(T{}, Device::kCpu, table, target, drows);
      const test::ActionResults fast = run(T{}, Device::kCuda, table, target, drows);
      EXPECT_TRUE(test::same_bits(fast.rows, plain.rows));
      EXPECT_TRUE(test::matches(fast.dtable, plain.dtable, exact.dtable));
      EXPECT_TRUE(test::matches(fast.dtarget, plain.dtarget, exact.dtarget));
    }
  }
}

TEST(CudaRankingTargets, AreFoundAsOnTheHost) {
  TGR_SKIP_WITHOUT_GPU();
  std::vector<EventCase> cases = event_cases();
  EventCase& many = cases.emplace_back();  // more sequences than a block scans at once
  many.prefix = 1;
  for (std::int64_t b = 0; b < 2500; ++b) {
    many.history.push_back(b % 3);
    many.targets.push_back(b % 5);
  }
  for (const EventCase& c : cases) {
    SCOPED_TRACE(::testing::Message() << c.tokens() << " tokens");
    const EventBatch batch(c);
    std::int64_t count = 0;
    for (const std::int64_t targets : c.targets) count += targets;
    std::vector<std::vector<std::int64_t>> results;
    for (const Device device : {Device::kCpu, Device::kCuda}) {
      const Context ctx({.device = device, .threads = 1});
      const PlacedEvents events(ctx, batch);
      Tensor tokens(DType::kI64, {count}, device), at(DType::kI64, {count}, device),
          times(DType::kI64, {count}, device), keys(DType::kI64, {count}, device),
          starts(DType::kI64, {std::ssize(c.history) + 1}, device);
      Tensor row_keys = test::random_tensor<double>({c.tokens()}, 4);  // any bits
      row_keys = test::place(ctx, row_keys);
      find_targets(ctx, events.view(),
                   {reinterpret_cast<const std::uint64_t*>(row_keys.data()), {c.tokens()}},
                   {tokens.view<std::int64_t, 1>(),
                    at.view<std::int64_t, 1>(),
                    times.view<std::int64_t, 1>(),
                    {reinterpret_cast<std::uint64_t*>(keys.data()), {count}},
                    starts.view<std::int64_t, 1>()});
      for (const Tensor* each : {&tokens, &at, &times, &keys, &starts}) {
        results.push_back(test::vector_of<std::int64_t>(ctx, *each));
      }
    }
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(results[5 + i], results[i]) << i;
  }
}

TYPED_TEST(CudaRankingOps, TargetRowsFindTheirWayBack) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  for (const std::int64_t cols : {1, 7, 64, 516, 5000}) {
    const std::int64_t rows = 37, all = 1000;
    std::vector<std::int64_t> places;
    for (std::int64_t i = 0; i < rows; ++i) places.push_back((i * 271 + 5) % all);
    const Tensor given = random_tensor<T>({rows, cols}, 1),
                 start = random_tensor<T>({all, cols}, 2);
    std::vector<Tensor> results;
    for (const Device device : {Device::kCpu, Device::kCuda}) {
      const Context ctx({.device = device, .threads = 1});
      const Tensor at = test::place(ctx, test::tensor_of(places));
      const Placed<T> from(ctx, given, margins_of(cols));
      Placed<T> spread(ctx, all, cols, margins_of(cols)), added(ctx, start, margins_of(cols));
      spread_rows<T>(ctx, from.rows(), at.view<std::int64_t, 1>(), spread.rows());
      add_rows_at<T>(ctx, from.rows(), at.view<std::int64_t, 1>(), added.rows());
      results.push_back(spread.fetch(ctx));
      results.push_back(added.fetch(ctx));
    }
    EXPECT_TRUE(test::same_bits(results[2], results[0])) << cols;
    EXPECT_TRUE(test::same_bits(results[3], results[1])) << cols;
  }
}

TYPED_TEST(CudaRankingOps, ClocksAreTheHosts) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  const std::int64_t late = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> times = {0, 1, -1, 3599, 3600, 86399, 86400, -86401, late, -late};
  for (std::int64_t i = 0; i < 500; ++i) times.push_back(i * 5017 - 100000);
  std::vector<Tensor> results;
  for (const Device device : {Device::kCpu, Device::kCuda}) {
    const Context ctx({.device = device, .threads = 1});
    const Tensor given = test::place(ctx, test::tensor_of(times));
    Placed<T> features(ctx, std::ssize(times), kClockFeatures, test::kCrooked);
    clock_features<T>(ctx, given.view<std::int64_t, 1>(), features.rows());
    results.push_back(features.fetch(ctx));
  }
  const double unit = std::is_same_v<T, double>  ? 0x1p-51
                      : std::is_same_v<T, float> ? 0x1p-23
                                                 : 0x1p-8;
  EXPECT_LE(test::max_error(results[1], results[0]), unit);
}

template <class T>
struct LossResults {
  Tensor losses, dlogits;
};

TYPED_TEST(CudaRankingOps, LossesAndTheirGradientsAreTheHosts) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  for (const auto& size : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 2}, {1, 1}, {7, 3}, {1024, 1}, {5000, 8}}) {
    const std::int64_t targets = size.first, tasks = size.second;
    SCOPED_TRACE(::testing::Message() << targets << " targets, " << tasks << " tasks");
    const Tensor logits = random_tensor<T>({targets, tasks}, 1, 30.0);
    Tensor labels = random_tensor<float>({targets, tasks}, 2);
    Tensor weights = random_tensor<float>({targets, tasks}, 3);
    std::vector<std::uint8_t> regression;
    for (std::int64_t k = 0; k < tasks; ++k) regression.push_back(k % 3 == 2 ? 1 : 0);
    for (std::int64_t i = 0; i < targets; ++i) {
      for (std::int64_t k = 0; k < tasks; ++k) {
        float& label = labels.view<float, 2>()(i, k);
        float& weight = weights.view<float, 2>()(i, k);
        if (k % 3 != 2) label = label > 0 ? 1.0f : 0.0f;
        weight = weight < -1 ? 0.0f : std::abs(weight);
        if (weight == 0) label = std::nanf("");  // hidden
      }
    }
    const Context host({.threads = 1});
    Tensor sums(DType::kF64, {tasks});
    weight_sums(host, weights.view<float, 2>(), sums.view<double, 1>());
    const auto run = [&](Device device) {
      const Context ctx({.device = device, .threads = 1});
      ctx.workspace().reserve(task_loss_workspace_bytes(ctx, targets, tasks));
      const Placed<T> in(ctx, logits, test::kCrooked);
      const Placed<float> y(ctx, labels, test::kCrooked), w(ctx, weights, test::kCrooked);
      Placed<T> dlogits(ctx, targets, tasks, test::kCrooked);
      const Tensor all = test::place(ctx, sums);
      const Tensor numbers = test::place(ctx, test::tensor_of(regression));
      Tensor losses(DType::kF64, {tasks}, device);
      task_loss<T>(ctx, in.rows(), y.rows(), w.rows(),
                   {.scale = 0.2,
                    .weight_sums = all.view<double, 1>(),
                    .regression = numbers.view<std::uint8_t, 1>()},
                   losses.view<double, 1>(), dlogits.rows());
      return LossResults<T>{to_host(ctx, losses), dlogits.fetch(ctx)};
    };
    const LossResults<T> cpu = run(Device::kCpu), gpu = run(Device::kCuda);
    EXPECT_LE(test::max_error(gpu.losses, cpu.losses),
              1e-13 * std::max(1.0, test::max_magnitude(cpu.losses)));
    const double unit = std::is_same_v<T, double>  ? 0x1p-50
                        : std::is_same_v<T, float> ? 0x1p-23
                                                   : 0x1p-8;
    EXPECT_LE(test::max_error(gpu.dlogits, cpu.dlogits), unit * test::max_magnitude(cpu.dlogits));
  }
}

struct TargetCase {
  std::vector<std::int64_t> before, targets;
  int heads;
  std::int64_t query_width, value_width;  // of a head
};

TYPED_TEST(CudaRankingOps, AttentionOfTargetsIsTheHosts) {
  TGR_SKIP_WITHOUT_GPU();
  using T = TypeParam;
  const std::vector<TargetCase> cases = {{{}, {}, 1, 4, 4},
                                         {{0, 3}, {0, 0}, 2, 5, 7},
                                         {{0, 5, 130, 1}, {1, 3, 2, 0}, 2, 6, 10},
                                         {{70, 0, 300, 1000}, {1, 1, 1, 1}, 4, 128, 128},
                                         {{33, 64, 200}, {9, 70, 5}, 2, 32, 64},
                                         {{17}, {6}, 1, 256, 250}};
  for (const TargetCase& c : cases) {
    std::vector<std::int64_t> lengths;
    for (std::size_t b = 0; b < c.before.size(); ++b) lengths.push_back(c.before[b] + c.targets[b]);
    const auto offsets = test::offsets_of(lengths), starts = test::offsets_of(c.targets);
    const std::int64_t n = offsets.back(), m = starts.back();
    const std::int64_t dq = c.heads * c.query_width, dv = c.heads * c.value_width;
    SCOPED_TRACE(::testing::Message() << n << " tokens, " << m << " targets, widths "
                                      << c.query_width << " and " << c.value_width);
    const Tensor q = random_tensor<T>({m, dq}, 1), k = random_tensor<T>({n, dq}, 2),
                 v = random_tensor<T>({n, dv}, 3), dout = random_tensor<T>({m, dv}, 4);
    const auto run = [&]<class R>(R, Device device, const std::vector<const Tensor*>& in) {
      const Context ctx({.device = device, .threads = 1});
      const Margins margins = dq % 8 == 0 && dv % 8 == 0 ? test::kAligned : test::kCrooked;
      const Placed<R> queries(ctx, *in[0], margins), keys(ctx, *in[1], margins),
          values(ctx, *in[2], margins), given(ctx, *in[3], margins);
      Placed<R> out(ctx, m, dv, margins), gq(ctx, m, dq, margins), gk(ctx, n, dq, margins),
          gv(ctx, n, dv, margins);
      const Tensor tokens = test::place(ctx, test::tensor_of(offsets));
      const Tensor targets = test::place(ctx, test::tensor_of(starts));
      const TargetSequences sequences = {tokens.view<std::int64_t, 1>(),
                                         targets.view<std::int64_t, 1>()};
      const TargetAttentionOptions options = {.heads = c.heads, .alpha = 0.3, .norm_length = 50};
      target_attention<R>(ctx, sequences, queries.rows(), keys.rows(), values.rows(), options,
                          out.rows());
      target_attention_backward<R>(ctx, sequences, queries.rows(), keys.rows(), values.rows(),
                                   options, given.rows(), gq.rows(), gk.rows(), gv.rows());
      std::vector<Tensor> results;
      for (const Placed<R>* each : {&out, &gq, &gk, &gv}) results.push_back(each->fetch(ctx));
      return results;
    };
    const Tensor wide_q = test::converted<double, T>(q), wide_k = test::converted<double, T>(k),
                 wide_v = test::converted<double, T>(v), wide_d = test::converted<double, T>(dout);
    const auto exact = run(double{}, Device::kCpu, {&wide_q, &wide_k, &wide_v, &wide_d});
    const auto plain = run(T{}, Device::kCpu, {&q, &k, &v, &dout});
    const auto fast = run(T{}, Device::kCuda, {&q, &k, &v, &dout});
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(test::matches(fast[i], plain[i], exact[i])) << i;
    }
    const auto again = run(T{}, Device::kCuda, {&q, &k, &v, &dout});
    for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(test::same_bits(again[i], fast[i])) << i;
  }
}

// Sums of none, one, a few and very many picks, so that each way of adding them is taken.
template <class T, class Out>
void check_weighted_rows(std::int64_t cols) {
  const std::int64_t rows = 300;
  const std::vector<std::int64_t> counts = {1, 0,   3, 700, 1, 0, 256, 257, 1, 2000,
                                            0, 511, 1, 2,   0, 1, 1,   300, 0};
  const std::vector<std::int64_t> offsets = test::offsets_of(counts);
  const std::int64_t picks = offsets.back();
  std::vector<std::int32_t> index;
  for (std::int64_t i = 0; i < picks; ++i) {
    index.push_back(static_cast<std::int32_t>((i * 7919 + 3) % rows));
  }
  Tensor weights = random_tensor<float>({picks}, 2);
  weights.view<float, 1>()(0) = 1;
  const Tensor given = random_tensor<T>({rows, cols}, 1);
  Tensor exact(DType::kF64, {std::ssize(counts), cols});
  for (std::size_t p = 0; p < counts.size(); ++p) {
    for (std::int64_t i = offsets[p]; i < offsets[p + 1]; ++i) {
      for (std::int64_t c = 0; c < cols; ++c) {
        exact.view<double, 2>()(static_cast<std::int64_t>(p), c) +=
            static_cast<double>(weights.view<float, 1>()(i)) *
            test::element(given, index[static_cast<std::size_t>(i)] * cols + c);
      }
    }
  }
  const auto run = [&](Device device) {
    const Context ctx({.device = device, .threads = 1});
    ctx.workspace().reserve(sum_weighted_rows_workspace_bytes(ctx, picks, cols));
    const Placed<T> from(ctx, given, margins_of(cols));
    Placed<Out> out(ctx, std::ssize(counts), cols, margins_of(cols));
    const Tensor starts = test::place(ctx, test::tensor_of(offsets));
    const Tensor which = test::place(ctx, test::tensor_of(index));
    const Tensor factors = test::place(ctx, weights);
    sum_weighted_rows<T, Out>(
        ctx, from.rows(),
        {starts.view<std::int64_t, 1>(), which.view<std::int32_t, 1>(), factors.view<float, 1>()},
        out.rows());
    return out.fetch(ctx);
  };
  const Tensor gpu = run(Device::kCuda);
  EXPECT_TRUE(test::matches(gpu, run(Device::kCpu), exact)) << cols;
  EXPECT_TRUE(test::same_bits(gpu, run(Device::kCuda))) << cols;
}

TEST(CudaRankingWeightedRows, AreTheHosts) {
  TGR_SKIP_WITHOUT_GPU();
  for (const std::int64_t cols : {1, 12, 64, 512, 1000}) {
    check_weighted_rows<float, float>(cols);
    check_weighted_rows<bf16, bf16>(cols);
    check_weighted_rows<bf16, float>(cols);
  }
}

}  // namespace
}  // namespace turbogr::ops
