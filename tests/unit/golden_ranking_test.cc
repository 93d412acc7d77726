// The ranking model, its loss and its optimisers against an independent implementation in double
// (tests/fixtures/ranking): what is made on the way, the loss, and the gradient of every parameter
// and every table.
#include "tests/support/golden_ranking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/tolerance.h"
#include "turbogr/eval/click_metrics.h"
#include "turbogr/model/ranking_model.h"
#include "turbogr/ops/loss/task_loss.h"
#include "turbogr/ops/rows/cross_hash.h"
#include "turbogr/ops/rows/update.h"

namespace turbogr::model {
namespace {

using test::Golden;
using test::kManyPrefixes;
using test::kManyTargets;
using test::kWidthOfRows;
using test::options_of;
using test::Shape;

// The batch, and how its features' rows are found in tables: every use of a row with its share.
struct Batch {
  std::vector<std::int64_t> offsets, history, targets, times;
  std::vector<std::uint32_t> actions;
  std::int64_t num_targets = 0;
  struct Use {
    bool prefix;
    std::int64_t row, column;  // where it goes, of prefix or item rows
    std::string table;
    std::int64_t id;
    double share;
  };
  std::vector<Use> uses;

  Batch(const Shape& shape, const Golden& golden)
      : history(golden.integers("h")),
        targets(golden.integers("m")),
        times(golden.integers("when")) {
    const auto num_prefix = std::ssize(shape.prefix);
    std::vector<std::int64_t> lengths;
    const std::vector<std::int64_t> bits = golden.integers("action");
    std::size_t next = 0;
    for (std::size_t b = 0; b < history.size(); ++b) {
      lengths.push_back(num_prefix + history[b] + targets[b]);
      num_targets += targets[b];
      for (std::int64_t j = 0; j < history[b]; ++j) {
        actions.push_back(static_cast<std::uint32_t>(bits.at(next++)));
      }
      actions.insert(actions.end(), static_cast<std::size_t>(targets[b]), 0xffffffffu);
    }
    offsets = test::offsets_of(lengths);
    add_prefix_uses(shape, golden.integers("context"));
    for (std::size_t f = 0; f < shape.items.size(); ++f) {
      add_item_uses(shape.items[f], static_cast<std::int64_t>(f) * kWidthOfRows,
                    golden.integers("id." + shape.items[f]));
    }
  }

  void add_prefix_uses(const Shape& shape, const std::vector<std::int64_t>& ids) {
    for (std::size_t b = 0; b < history.size(); ++b) {
      for (std::size_t k = 0; k < shape.prefix.size(); ++k) {
        if (history[b] + targets[b] < shape.prefix[k].least_length) continue;
        uses.push_back({true, static_cast<std::int64_t>(b),
                        static_cast<std::int64_t>(k) * kWidthOfRows, shape.prefix[k].table,
                        ids[b * shape.prefix.size() + k], 1.0});
      }
    }
  }
  // A bag where there are several ids an event: the mean of those that are there.
  void add_item_uses(const std::string& table, std::int64_t column,
                     const std::vector<std::int64_t>& ids) {
    const std::size_t bag = ids.size() / times.size();
    for (std::size_t event = 0; event < times.size(); ++event) {
      const auto first = ids.begin() + static_cast<std::ptrdiff_t>(event * bag);
      const auto there = std::count_if(first, first + static_cast<std::ptrdiff_t>(bag),
                                       [](std::int64_t id) { return id >= 0; });
      for (std::size_t i = 0; i < bag; ++i) {
        if (first[static_cast<std::ptrdiff_t>(i)] < 0) continue;
        uses.push_back({false, static_cast<std::int64_t>(event), column, table,
                        first[static_cast<std::ptrdiff_t>(i)], 1.0 / static_cast<double>(there)});
      }
    }
  }

  RankingStep step(const Shape& shape) const {
    RankingStep step;
    step.sequences = {.offsets = test::view_of(offsets),
                      .num_prefix = std::ssize(shape.prefix),
                      .num_targets = test::view_of(targets),
                      .times = test::view_of(times)};
    step.num_targets = num_targets;
    step.actions = {actions.data(), {std::ssize(actions)}};
    step.norm_length = batch_norm_length(step.sequences);
    return step;
  }
};

// [count, cols] of a view as a tensor.
template <class T>
Tensor copied(Rows<const T> rows) {
  Tensor out(dtype_of<T>(), {rows.rows, rows.cols});
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    std::copy_n(rows.row(r), rows.cols, out.view<T, 2>().data + r * rows.cols);
  }
  return out;
}

template <class T>
void run_golden(const Shape& shape, double tolerance) {
  using A = Accum<T>;
  const Golden golden(shape);
  const Batch batch(shape, golden);
  const Context ctx({.threads = 2});
  const RankingOptions options = options_of(shape);
  const std::int64_t num_tokens = batch.offsets.back();
  RankingModel<T> model(
      ctx, options,
      {.layers = {.capacity = num_tokens + 3, .sequences = std::ssize(batch.history)},
       .targets = batch.num_targets + 1});
  ParameterSet<T>& parameters = model.parameters();
  for (int i = 0; i < parameters.size(); ++i) {
    const Tensor value = golden.tensor("p." + parameters.spec(i).name);
    ASSERT_EQ(parameters.value(i).shape(), value.shape()) << parameters.spec(i).name;
    parameters.value(i) = test::converted<A, double>(value);
  }
  model.refresh(ctx);
  const auto expect_close = [&](const std::string& what, const Tensor& got, const Tensor& want) {
    EXPECT_LE(test::max_error(got, want), tolerance * std::max(1.0, test::max_magnitude(want)))
        << what;
  };

  Tensor prefix(dtype_of<T>(), {std::ssize(batch.history), options.prefix * kWidthOfRows});
  Tensor items(dtype_of<T>(), {std::ssize(batch.times), options.item_features * kWidthOfRows});
  for (const Batch::Use& use : batch.uses) {
    const Tensor table = golden.tensor("p.tables." + use.table);
    for (std::int64_t c = 0; c < kWidthOfRows; ++c) {
      T& value = (use.prefix ? prefix : items).template view<T, 2>()(use.row, use.column + c);
      value = convert<T>(convert<A>(value) +
                         static_cast<A>(use.share * table.view<double, 2>()(use.id, c)));
    }
  }
  const RankingStep step = batch.step(shape);
  const RankingRows<const T> rows = {prefix.template view<T, 2>(), items.template view<T, 2>()};
  const Tensor logits = copied<T>(model.forward(ctx, step, rows));
  for (std::int64_t layer = 0; layer <= options.layers; ++layer) {
    const std::string name = "x." + std::to_string(layer);
    expect_close(name, copied<T>(model.layer_input(layer, num_tokens)), golden.tensor(name));
  }
  expect_close("user", copied<T>(model.user_rows(batch.num_targets)), golden.tensor("user"));
  expect_close("item", copied<T>(model.item_rows(batch.num_targets)), golden.tensor("item"));
  expect_close("logits", logits, golden.tensor("logits"));

  const Tensor labels = test::converted<float, double>(golden.tensor("label"));
  const Tensor weights = test::converted<float, double>(golden.tensor("weight"));
  std::vector<double> sums(static_cast<std::size_t>(shape.tasks)), losses(sums.size());
  Tensor dlogits(dtype_of<T>(), logits.shape());
  ops::weight_sums(ctx, weights.view<float, 2>(), test::view_of(sums));
  ops::task_loss<T>(ctx, logits.view<T, 2>(), labels.view<float, 2>(), weights.view<float, 2>(),
                    {.scale = 20, .weight_sums = {sums.data(), {shape.tasks}}},
                    test::view_of(losses), dlogits.view<T, 2>());
  double loss = 0;
  for (const double each : losses) loss += each;
  EXPECT_NEAR(loss, golden.number("loss"), tolerance * golden.number("loss"));

  Tensor dprefix(dtype_of<T>(), prefix.shape()), ditems(dtype_of<T>(), items.shape());
  model.backward(ctx, step, rows, dlogits.view<T, 2>(),
                 {dprefix.template view<T, 2>(), ditems.template view<T, 2>()});
  double squares = 0;
  for (int i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters.spec(i).name;
    expect_close("gradient of " + name, parameters.gradient(i), golden.tensor("g." + name));
    for (std::int64_t k = 0; k < parameters.gradient(i).size(); ++k) {
      const double g = test::element(parameters.gradient(i), k);
      squares += g * g;
    }
  }
  EXPECT_NEAR(std::sqrt(squares), golden.number("gradient_norm"),
              tolerance * golden.number("gradient_norm"));
  std::map<std::string, Tensor> tables;
  for (const Batch::Use& use : batch.uses) {
    Tensor& sum = tables[use.table];
    if (sum.size() == 0) sum = Tensor(DType::kF64, golden.file().at("g.tables." + use.table).shape);
    for (std::int64_t c = 0; c < kWidthOfRows; ++c) {
      sum.view<double, 2>()(use.id, c) +=
          use.share *
          static_cast<double>(convert<A>(
              (use.prefix ? dprefix : ditems).template view<T, 2>()(use.row, use.column + c)));
    }
  }
  for (const auto& [table, sum] : tables) {
    expect_close("gradient of table " + table, sum, golden.tensor("g.tables." + table));
  }
  // Nothing of the other implementation is left out.
  int gradients = 0;
  for (const TensorEntry& entry : golden.file().entries()) {
    gradients += entry.name.starts_with("g.") ? 1 : 0;
  }
  EXPECT_EQ(gradients, parameters.size() + static_cast<int>(tables.size()));
}

TEST(GoldenRanking, ManyTargetsMatchInDouble) { run_golden<double>(kManyTargets, 1e-11); }
TEST(GoldenRanking, ManyPrefixesMatchInDouble) { run_golden<double>(kManyPrefixes, 1e-11); }
TEST(GoldenRanking, ManyTargetsMatchInSingle) { run_golden<float>(kManyTargets, 2e-5); }
TEST(GoldenRanking, ManyPrefixesMatchInSingle) { run_golden<float>(kManyPrefixes, 2e-5); }

float* floats(Tensor& tensor) { return reinterpret_cast<float*>(tensor.data()); }

// From the fixture's gradients: where one is all but zero, Adam's first step is its sign.
void run_optimisers(const Shape& shape) {
  const Golden golden(shape);
  const Context ctx({.threads = 2, .workspace_bytes = 1 << 20});
  struct Dense {
    std::string name;
    Tensor weight, gradient, first, second;
  };
  std::vector<Dense> dense;
  std::vector<std::string> tables;
  for (const TensorEntry& entry : golden.file().entries()) {
    if (!entry.name.starts_with("p.")) continue;
    const std::string name = entry.name.substr(2);
    if (name.starts_with("tables.")) {
      tables.push_back(name.substr(7));
      continue;
    }
    dense.push_back({name, test::converted<float, double>(golden.tensor("p." + name)),
                     test::converted<float, double>(golden.tensor("g." + name)),
                     Tensor(DType::kF32, entry.shape), Tensor(DType::kF32, entry.shape)});
  }
  std::vector<ops::UpdateSlice> slices;
  for (Dense& each : dense) {
    slices.push_back({floats(each.weight), floats(each.gradient), floats(each.first),
                      floats(each.second), each.weight.size()});
  }
  const ops::UpdateSlices all(ctx, slices);
  double squares = 0;
  ops::StepScale scale = {};
  ops::squared_sum(ctx, all, &squares);
  ops::make_step_scale(ctx, {&squares, {1}}, {nullptr, {0}}, {.clip = 1}, &scale);
  EXPECT_NEAR(scale.norm, golden.number("gradient_norm"), 1e-5 * scale.norm);
  ops::adamw(ctx, all, {.rate = 0.01, .beta1 = 0.95, .beta2 = 0.999}, &scale);
  for (const Dense& each : dense) {
    EXPECT_LE(test::max_error(each.weight, golden.tensor("after." + each.name)), 2e-6) << each.name;
  }

  for (const std::string& name : tables) {
    Tensor weight = test::converted<float, double>(golden.tensor("p.tables." + name));
    const Tensor gradient = test::converted<float, double>(golden.tensor("g.tables." + name));
    Tensor second = test::converted<float, double>(golden.tensor("acc0." + name));
    std::vector<std::int64_t> ids;
    for (std::int64_t id = 0; id < weight.shape()[0]; ++id) ids.push_back(id);
    ops::update_rows(
        ctx, ops::RowOptimiser::kAdaGrad,
        {.weight = weight.view<float, 2>(), .second_moment = {floats(second), {second.size(), 1}}},
        test::view_of(ids), gradient.view<float, 2>(), {.rate = 0.01, .epsilon_outside = true},
        nullptr);
    EXPECT_LE(test::max_error(weight, golden.tensor("after.tables." + name)), 2e-6) << name;
    EXPECT_LE(test::max_error(second, golden.tensor("acc1." + name)),
              1e-6 * std::max(1.0, test::max_magnitude(second)))
        << name;
  }
}

TEST(GoldenRanking, OptimisersMatchOfManyTargets) { run_optimisers(kManyTargets); }
TEST(GoldenRanking, OptimisersMatchOfManyPrefixes) { run_optimisers(kManyPrefixes); }

TEST(GoldenRanking, HashesAndFiguresMatch) {
  for (const Shape& shape : {kManyTargets, kManyPrefixes}) {
    const Golden golden(shape);
    const std::vector<std::int64_t> hashes = golden.integers("xxh64");
    const auto hash = [](auto... keys) {
      return static_cast<std::int64_t>(
          ops::cross_hash(std::array<std::int64_t, sizeof...(keys)>{keys...}));
    };
    EXPECT_EQ(hashes,
              (std::vector<std::int64_t>{hash(1, 2), hash(7, -1), hash(123456789, 42, 23)}));

    const Tensor scores = golden.tensor("metric.score");
    const std::vector<std::int64_t> labels = golden.integers("metric.label");
    const std::vector<std::int64_t> groups = golden.integers("metric.group");
    train::ClickMetrics metrics;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      metrics.add({.probability = test::element(scores, static_cast<std::int64_t>(i)),
                   .positive = labels[i] > 0,
                   .group = groups[i]});
    }
    const train::ClickFigures figures = metrics.figures();
    EXPECT_NEAR(figures.auc.value(), golden.number("metric.AUC"), 1e-14);
    EXPECT_NEAR(figures.gauc.value(), golden.number("metric.GAUC"), 1e-14);
    EXPECT_NEAR(figures.gauc_by_targets.value(), golden.number("metric.GAUC_weighted"), 1e-14);
    EXPECT_EQ(figures.groups, golden.integers("metric.groups")[0]);
    EXPECT_NEAR(figures.normalized_entropy.value(), golden.number("metric.NE"), 1e-13);
    EXPECT_NEAR(figures.accuracy.value(), golden.number("metric.accuracy"), 1e-14);
  }
}

}  // namespace
}  // namespace turbogr::model
