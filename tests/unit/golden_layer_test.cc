// One HSTU and one FuXi layer against an independent implementation in double
// (tests/golden/*.json): forward, the input's gradient and every parameter's.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/paths.h"
#include "tests/support/tolerance.h"
#include "turbogr/model/attention_block.h"
#include "turbogr/model/feed_forward.h"

namespace turbogr::model {
namespace {

using nlohmann::json;

struct Golden {
  json file;

  explicit Golden(const std::string& name) {
    std::ifstream in(test::source_dir() + "/tests/golden/" + name);
    file = json::parse(in);
  }
  Tensor tensor(const std::string& name) const {
    const json& entry = file["tensors"][name];
    Tensor tensor(DType::kF64, entry["shape"].get<std::vector<std::int64_t>>());
    const auto values = entry["values"].get<std::vector<double>>();
    std::memcpy(tensor.data(), values.data(), tensor.bytes());
    return tensor;
  }
  std::vector<std::int64_t> integers(const std::string& name) const {
    return file["tensors"][name]["values"].get<std::vector<std::int64_t>>();
  }
  // The other implementation keeps some matrices as [outputs, inputs].
  Tensor transposed(const std::string& name) const {
    const Tensor from = tensor(name);
    const std::int64_t rows = from.shape()[0];
    const std::int64_t cols = from.shape()[1];
    Tensor to(DType::kF64, {cols, rows});
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        to.view<double, 2>()(c, r) = from.view<double, 2>()(r, c);
      }
    }
    return to;
  }
  ModelOptions options(ModelKind kind) const {
    const json& o = file["options"];
    return {.kind = kind,
            .layers = 1,
            .width = o["width"],
            .heads = o["heads"],
            .dq = o["dq"],
            .dv = o["dv"],
            .feed_forward = o["ffn"],
            .max_length = o["max_length"],
            .norm_length = o["norm_length"]};
  }
};

template <class T>
void set(ParameterSet<T>& parameters, const std::string& name, const Tensor& value) {
  for (int i = 0; i < parameters.size(); ++i) {
    if (parameters.spec(i).name != name) continue;
    ASSERT_EQ(parameters.value(i).shape(), value.shape()) << name;
    for (std::int64_t k = 0; k < value.size(); ++k) {
      reinterpret_cast<Accum<T>*>(parameters.value(i).data())[k] =
          static_cast<Accum<T>>(test::element(value, k));
    }
    return;
  }
  FAIL() << "no parameter " << name;
}

template <class T>
const Tensor& gradient(const ParameterSet<T>& parameters, const std::string& name) {
  for (int i = 0; i < parameters.size(); ++i) {
    if (parameters.spec(i).name == name) return parameters.gradient(i);
  }
  throw Error("no parameter " + name);
}

// [W_1 | W_3] of the feed-forward.
Tensor side_by_side(const Tensor& left, const Tensor& right) {
  const std::int64_t rows = left.shape()[0];
  const std::int64_t cols = left.shape()[1];
  Tensor both(DType::kF64, {rows, 2 * cols});
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      both.view<double, 2>()(r, c) = left.view<double, 2>()(r, c);
      both.view<double, 2>()(r, cols + c) = right.view<double, 2>()(r, c);
    }
  }
  return both;
}

template <class T>
void run_golden(ModelKind kind, double tolerance) {
  const bool fuxi = kind == ModelKind::kFuxi;
  const Golden golden(fuxi ? "fuxi_layer.json" : "hstu_layer.json");
  const ModelOptions options = golden.options(kind);
  const Context ctx({.threads = 2, .workspace_bytes = 64 << 20});
  ParameterSet<T> parameters;
  AttentionBlock<T> attention(options, 0, parameters);
  std::unique_ptr<FeedForward<T>> feed_forward;
  if (fuxi) feed_forward = std::make_unique<FeedForward<T>>(options, 0, parameters);

  set(parameters, "layers.0.projection", golden.tensor("p.w"));
  set(parameters, "layers.0.output", golden.transposed("p.out.weight"));
  set(parameters, "layers.0.output_bias", golden.tensor("p.out.bias"));
  set(parameters, "layers.0.position", golden.tensor("p.w_pos"));
  set(parameters, "layers.0.time", golden.tensor("p.w_time"));
  if (fuxi) {
    set(parameters, "layers.0.feed_forward_gates",
        side_by_side(golden.transposed("p.ff1.weight"), golden.transposed("p.ff3.weight")));
    set(parameters, "layers.0.feed_forward_output", golden.transposed("p.ff2.weight"));
    feed_forward->refresh(ctx, parameters);
  }
  attention.refresh(ctx, parameters);

  const std::vector<std::int64_t> offsets = test::offsets_of(golden.integers("lengths"));
  const std::vector<std::int64_t> key_times = golden.integers("key_time");
  const std::vector<std::int64_t> query_times = golden.integers("query_time");
  const std::int64_t n = offsets.back();
  StepInput step;
  step.offsets = test::view_of(offsets);
  step.num_tokens = offsets.back();
  step.key_times = {key_times.data(), {n}};
  step.query_times = {query_times.data(), {n}};

  const Tensor x = test::converted<T, double>(golden.tensor("x"));
  const Tensor dy = test::converted<T, double>(golden.tensor("dy"));
  Tensor middle(dtype_of<T>(), x.shape()), y(dtype_of<T>(), x.shape());
  Tensor dmiddle(dtype_of<T>(), x.shape()), dx(dtype_of<T>(), x.shape());
  AttentionSaved<T> saved(options, n);
  AttentionScratch<T> scratch(options, n);
  attention.forward(ctx, parameters, step, x.view<T, 2>(), saved,
                    fuxi ? middle.view<T, 2>() : y.view<T, 2>());
  if (fuxi) {
    FeedForwardSaved<T> feed_saved(options, n);
    FeedForwardScratch<T> feed_scratch(options, n);
    feed_forward->forward(ctx, parameters, step, middle.view<T, 2>(), feed_saved, y.view<T, 2>());
    feed_forward->backward(ctx, parameters, step, middle.view<T, 2>(), feed_saved, dy.view<T, 2>(),
                           feed_scratch, dmiddle.view<T, 2>());
    attention.backward(ctx, parameters, step, x.view<T, 2>(), saved, dmiddle.view<T, 2>(), scratch,
                       dx.view<T, 2>());
  } else {
    attention.backward(ctx, parameters, step, x.view<T, 2>(), saved, dy.view<T, 2>(), scratch,
                       dx.view<T, 2>());
  }

  const auto expect_close = [&](const char* what, const Tensor& got, const Tensor& want) {
    EXPECT_LE(test::max_error(got, want), tolerance * std::max(1.0, test::max_magnitude(want)))
        << what;
  };
  expect_close("y", y, golden.tensor("y"));
  expect_close("dx", dx, golden.tensor("dx"));
  expect_close("projection", gradient(parameters, "layers.0.projection"), golden.tensor("g.w"));
  expect_close("output", gradient(parameters, "layers.0.output"),
               golden.transposed("g.out.weight"));
  expect_close("output bias", gradient(parameters, "layers.0.output_bias"),
               golden.tensor("g.out.bias"));
  expect_close("position", gradient(parameters, "layers.0.position"), golden.tensor("g.w_pos"));
  expect_close("time", gradient(parameters, "layers.0.time"), golden.tensor("g.w_time"));
  if (fuxi) {
    expect_close(
        "gates", gradient(parameters, "layers.0.feed_forward_gates"),
        side_by_side(golden.transposed("g.ff1.weight"), golden.transposed("g.ff3.weight")));
    expect_close("feed-forward output", gradient(parameters, "layers.0.feed_forward_output"),
                 golden.transposed("g.ff2.weight"));
  }
}

TEST(GoldenLayer, HstuMatchesInDouble) { run_golden<double>(ModelKind::kHstu, 1e-12); }
TEST(GoldenLayer, FuxiMatchesInDouble) { run_golden<double>(ModelKind::kFuxi, 1e-12); }
TEST(GoldenLayer, HstuMatchesInSingle) { run_golden<float>(ModelKind::kHstu, 5e-6); }
TEST(GoldenLayer, FuxiMatchesInSingle) { run_golden<float>(ModelKind::kFuxi, 5e-6); }
// Eight bits of mantissa through two norms and five products.
TEST(GoldenLayer, HstuMatchesInBf16) { run_golden<bf16>(ModelKind::kHstu, 4e-2); }
TEST(GoldenLayer, FuxiMatchesInBf16) { run_golden<bf16>(ModelKind::kFuxi, 4e-2); }

}  // namespace
}  // namespace turbogr::model
