#include "turbogr/model/model.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/messages.h"

namespace turbogr::model {
namespace {

using test::message_of;

std::int64_t dense_parameters(ModelKind kind, std::int64_t max_length) {
  // The count does not depend on values: registering is enough, no weights are packed.
  const ModelOptions options = {.kind = kind,
                                .layers = 16,
                                .width = 1024,
                                .heads = 8,
                                .dq = 128,
                                .dv = 128,
                                .feed_forward = 1024,
                                .max_length = max_length};
  ParameterSet<float> one_layer;
  const AttentionBlock<float> attention(options, 0, one_layer);
  if (kind == ModelKind::kFuxi) const FeedForward<float> feed_forward(options, 0, one_layer);
  return 16 * one_layer.count();
}

TEST(Model, CountsTheParametersOfThePublishedModels) {
  EXPECT_EQ(dense_parameters(ModelKind::kHstu, 2048), 83'970'048);
  EXPECT_NEAR(static_cast<double>(dense_parameters(ModelKind::kHstu, 4096)), 84.04e6, 0.01e6);
  EXPECT_NEAR(static_cast<double>(dense_parameters(ModelKind::kFuxi, 2048)), 201.4e6, 0.2e6);
}

struct Outcome {
  std::vector<float> out, drows, gradients;
};

Outcome run_once(ModelKind kind, int threads, bool recompute,
                 const std::vector<std::int64_t>& lengths) {
  const Context ctx({.threads = threads});
  const ModelOptions options = {.kind = kind,
                                .layers = 2,
                                .width = 48,
                                .heads = 3,
                                .dq = 16,
                                .dv = 16,
                                .feed_forward = 40,
                                .max_length = 100,
                                .norm_length = 100,
                                .dropout = 0.2};
  const std::vector<std::int64_t> offsets = test::offsets_of(lengths);
  const std::int64_t n = offsets.back();
  std::vector<std::int64_t> times(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < times.size(); ++i) times[i] = static_cast<std::int64_t>(37 * i);
  StepInput step;
  step.offsets = test::view_of(offsets);
  step.num_tokens = offsets.back();
  step.key_times = {times.data(), {n}};
  step.query_times = {times.data(), {n}};
  step.training = true;
  Model<float> model(ctx, options, {.capacity = n + 3, .recompute = recompute});
  model.initialise(ctx, 9);
  const Tensor rows = test::random_tensor<float>({n, 48}, 4, 0.1);
  const Tensor dout = test::random_tensor<float>({n, 48}, 5);
  Tensor drows(DType::kF32, {n, 48});
  const Rows<const float> out = model.forward(ctx, step, rows.view<float, 2>());
  Outcome run;
  run.out.assign(out.data, out.data + n * 48);
  model.backward(ctx, step, dout.view<float, 2>(), drows.view<float, 2>());
  run.drows.assign(drows.view<float, 2>().data, drows.view<float, 2>().data + n * 48);
  for (int i = 0; i < model.parameters().size(); ++i) {
    const Tensor& g = model.parameters().gradient(i);
    const auto* values = reinterpret_cast<const float*>(g.data());
    run.gradients.insert(run.gradients.end(), values, values + g.size());
  }
  return run;
}

TEST(Model, GivesTheSameBitsForAnyThreadCountAndWithRecompute) {
  for (const ModelKind kind : {ModelKind::kHstu, ModelKind::kFuxi}) {
    const std::vector<std::int64_t> lengths = {70, 0, 3, 100, 1};
    const Outcome base = run_once(kind, 1, false, lengths);
    for (const auto& [threads, recompute] : {std::pair{2, false}, std::pair{3, true}}) {
      const Outcome other = run_once(kind, threads, recompute, lengths);
      EXPECT_EQ(base.out, other.out);
      EXPECT_EQ(base.drows, other.drows);
      EXPECT_EQ(base.gradients, other.gradients);
    }
  }
}

TEST(Model, RecomputingKeepsLess) {
  const Context ctx({.threads = 1});
  const ModelOptions options = {.layers = 4, .width = 32, .heads = 2, .dq = 16, .dv = 16};
  const Model<float> keep(ctx, options, {.capacity = 1000});
  const Model<float> again(ctx, options, {.capacity = 1000, .recompute = true});
  EXPECT_LT(again.activation_bytes(), keep.activation_bytes() / 2);
}

TEST(Model, RefusesAStepThatWasNotPlanned) {
  const Context ctx({.threads = 1});
  Model<float> model(ctx, {.width = 8, .heads = 1, .dq = 8, .dv = 8}, {.capacity = 3});
  const std::vector<std::int64_t> offsets = {0, 4};
  StepInput step;
  step.offsets = test::view_of(offsets);
  step.num_tokens = offsets.back();
  const Tensor rows(DType::kF32, {4, 8});
  EXPECT_NE(message_of([&] {
              model.forward(ctx, step, rows.view<float, 2>());
            }).find("4 tokens in a model planned for 3; raise the token budget"),
            std::string::npos);
  const Tensor narrow(DType::kF32, {3, 7});
  EXPECT_NE(
      message_of([&] { model.forward(ctx, step, narrow.view<float, 2>()); }).find("wanted [4, 8]"),
      std::string::npos);
}

}  // namespace
}  // namespace turbogr::model
