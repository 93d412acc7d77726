// The whole dense model in double: every parameter and the item rows against central differences,
// for each model and variant, dropout on.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/gradcheck.h"
#include "turbogr/model/model.h"

namespace turbogr::model {
namespace {

struct Case {
  std::string name;
  ModelOptions options;
  bool recompute = false;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class ModelGradient : public ::testing::TestWithParam<Case> {};

TEST_P(ModelGradient, MatchesCentralDifferences) {
  const Context ctx({.threads = 1, .workspace_bytes = 16 << 20});
  const ModelOptions options = GetParam().options;
  const std::vector<std::int64_t> offsets = test::offsets_of({4, 0, 1, 3});
  const std::vector<std::int64_t> key_times = {10, 10, 70, 4000, 5, 1, 90, 80};
  const std::vector<std::int64_t> query_times = {10, 70, 4000, 9999, 6, 90, 80, 100000};
  StepInput step;
  step.offsets = test::view_of(offsets);
  step.num_tokens = offsets.back();
  step.key_times = {key_times.data(), {8}};
  step.query_times = {query_times.data(), {8}};
  const std::vector<std::uint32_t> signals = {0, 1, 5, 3, 7, 2, 0, 4};
  step.signals = {signals.data(), {8}};
  step.training = true;
  step.seed = 3;
  step.step = 17;

  Model<double> model(ctx, options, {.capacity = 9, .recompute = GetParam().recompute});
  model.initialise(ctx, 5);
  Tensor rows = test::random_tensor<double>({8, options.width}, 1, 0.3);
  const Tensor dout = test::random_tensor<double>({8, options.width}, 2);
  Tensor drows(DType::kF64, rows.shape());
  const auto loss = [&] {
    model.refresh(ctx);
    const Rows<const double> out = model.forward(ctx, step, rows.view<double, 2>());
    double sum = 0;
    for (std::int64_t r = 0; r < out.rows; ++r) {
      for (std::int64_t c = 0; c < out.cols; ++c) sum += out(r, c) * dout.view<double, 2>()(r, c);
    }
    return sum;
  };
  loss();
  model.parameters().zero_gradients(ctx);
  model.backward(ctx, step, dout.view<double, 2>(), drows.view<double, 2>());

  EXPECT_LT(test::gradient_gap(rows, drows, loss), 1e-7);
  for (int i = 0; i < model.parameters().size(); ++i) {
    EXPECT_LT(test::gradient_gap(model.parameters().value(i), model.parameters().gradient(i), loss),
              1e-7)
        << model.parameters().spec(i).name;
  }
}

ModelOptions small(ModelKind kind) {
  return {.kind = kind,
          .layers = 2,
          .width = 6,
          .heads = 2,
          .dq = 3,
          .dv = 2,
          .feed_forward = 5,
          .max_length = 5,
          .norm_length = 7,
          .dropout = 0.25};
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const ModelKind kind : {ModelKind::kHstu, ModelKind::kFuxi}) {
    const std::string name = kind == ModelKind::kHstu ? "hstu" : "fuxi";
    all.push_back({name, small(kind)});
    all.push_back({name + "_recompute", small(kind), true});
    ModelOptions options = small(kind);
    options.affine_norms = true;
    options.silu_on_all = false;
    options.alpha = 0.7;
    options.window = 1;
    options.bias = BiasKind::kTime;
    options.actions = 3;
    all.push_back({name + "_options", options});
  }
  ModelOptions concat = small(ModelKind::kHstu);
  concat.concat = true;
  concat.bias = BiasKind::kNone;
  all.push_back({"hstu_concat", concat});
  ModelOptions ranking = concat;
  ranking.concat_input = true;
  ranking.projection_bias = true;
  ranking.output_bias = false;
  ranking.xavier_projection = true;
  ranking.affine_norms = true;
  ranking.silu_on_all = false;
  all.push_back({"hstu_ranking", ranking});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, ModelGradient, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace turbogr::model
