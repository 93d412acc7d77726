// The norm after attention, head by head: against its definition, and apart for every head.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/messages.h"
#include "tests/support/tolerance.h"
#include "turbogr/model/attention_block.h"

namespace turbogr::model {
namespace {

constexpr std::int64_t kTokens = 11;

ModelOptions three_heads(bool concat) {
  ModelOptions options;
  options.width = 5;
  options.heads = 3;
  options.dq = 2;
  options.dv = 4;
  options.max_length = 7;
  options.norm_length = 7;
  options.bias = BiasKind::kNone;
  options.silu_on_all = false;
  options.affine_norms = true;
  options.concat = concat;
  options.concat_input = concat;
  options.projection_bias = true;
  options.norm_heads = true;
  return options;
}

struct Layer {
  Context ctx{{.threads = 2, .workspace_bytes = std::size_t{1} << 24}};
  ParameterSet<double> parameters;
  AttentionBlock<double> block;
  AttentionSaved<double> saved;
  std::vector<std::int64_t> offsets = {0, 7, 7, kTokens};
  Tensor x = test::random_tensor<double>({kTokens, 5}, 1);
  Tensor y{DType::kF64, {kTokens, 5}};
  StepInput step;

  explicit Layer(const ModelOptions& options)
      : block(options, 0, parameters), saved(options, kTokens) {
    for (int i = 0; i < parameters.size(); ++i) {
      parameters.value(i) = test::random_tensor<double>(parameters.value(i).shape(), 10 + i);
    }
    block.refresh(ctx, parameters);
    step.offsets = test::view_of(offsets);
    step.num_tokens = kTokens;
  }
  void forward() {
    block.forward(ctx, parameters, step, x.view<double, 2>(), saved, y.view<double, 2>());
  }
  const Tensor& named(const std::string& name) {
    for (int i = 0; i < parameters.size(); ++i) {
      if (parameters.spec(i).name == name) return parameters.value(i);
    }
    throw Error("no parameter " + name);
  }
};

TEST(NormHeads, EveryHeadIsNormedByItself) {
  for (const bool concat : {false, true}) {
    const ModelOptions options = three_heads(concat);
    Layer layer(options);
    layer.forward();
    const auto attended = layer.saved.attended.view<double, 2>();
    const auto linear = layer.saved.linear.view<double, 2>();
    const auto mixed = layer.saved.mixed.view<double, 2>();
    const Tensor& weight = layer.named("layers.0.attended_norm_weight");
    const Tensor& bias = layer.named("layers.0.attended_norm_bias");
    const std::int64_t dv = options.dv, blocks = concat ? 3 : 1;
    for (std::int64_t token = 0; token < kTokens; ++token) {
      for (std::int64_t head = 0; head < options.heads; ++head) {
        double sum = 0, squares = 0;
        for (std::int64_t c = 0; c < dv; ++c) {
          sum += attended(token, head * dv + c);
          squares += attended(token, head * dv + c) * attended(token, head * dv + c);
        }
        const double mean = sum / static_cast<double>(dv);
        const double variance = squares / static_cast<double>(dv) - mean * mean;
        for (std::int64_t c = 0; c < dv; ++c) {
          const std::int64_t column = head * dv + c;
          const double u = linear(token, column), a = attended(token, column);
          const double gate = u / (1 + std::exp(-u));
          const double normed =
              (a - mean) / std::sqrt(variance + 1e-6) * test::element(weight, column) +
              test::element(bias, column);
          const std::int64_t first = head * blocks * dv + c;
          EXPECT_NEAR(mixed(token, first + (blocks - 1) * dv), gate * normed, 1e-11);
          if (!concat) continue;
          EXPECT_NEAR(mixed(token, first), gate, 1e-13);
          EXPECT_NEAR(mixed(token, first + dv), a, 1e-13);
        }
      }
    }
  }
}

TEST(NormHeads, OfOneHeadIsTheNormOfAll) {
  ModelOptions options = three_heads(/*concat=*/true);
  options.heads = 1;
  options.dropout = 0.3;
  Layer alone(options);
  options.norm_heads = false;
  Layer whole(options);
  for (Layer* each : {&alone, &whole}) {
    each->step.training = true;
    each->forward();
  }
  EXPECT_TRUE(test::max_error(alone.y, whole.y) == 0);
}

// Heads would else drop the same of their columns.
TEST(NormHeads, HeadsDropWhatTheyDropApart) {
  ModelOptions options = three_heads(/*concat=*/true);
  options.dropout = 0.5;
  Layer layer(options);
  layer.step.training = true;
  layer.forward();
  const auto mixed = layer.saved.mixed.view<double, 2>();
  std::vector<std::vector<bool>> dropped(3);
  for (std::int64_t token = 0; token < kTokens; ++token) {
    for (std::int64_t c = 0; c < mixed.shape[1]; ++c) {
      dropped[static_cast<std::size_t>(c / 12)].push_back(mixed(token, c) == 0);
    }
  }
  EXPECT_NE(dropped[0], dropped[1]);
  EXPECT_NE(dropped[0], dropped[2]);
  EXPECT_NE(dropped[1], dropped[2]);
}

TEST(NormHeads, AreAnOptionOfHstu) {
  ModelOptions options = three_heads(/*concat=*/false);
  options.kind = ModelKind::kFuxi;
  EXPECT_NE(test::message_of([&] { check_model_options(options); }).find("FuXi has none"),
            std::string::npos);
}

}  // namespace
}  // namespace turbogr::model
