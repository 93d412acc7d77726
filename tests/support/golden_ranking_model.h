// The ranking model, its loss and its optimisers on either device against an independent
// implementation in double (tests/fixtures/ranking): what is made on the way, the loss, and the
// gradient of every parameter and every table.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/golden_ranking.h"
#include "tests/support/on_device.h"
#include "tests/support/tolerance.h"
#include "turbogr/model/ranking_inputs.h"
#include "turbogr/model/ranking_model.h"
#include "turbogr/ops/loss/task_loss.h"
#include "turbogr/ops/rows/update.h"

namespace turbogr::test {

// The batch, and how its features' rows are found in tables: every use of a row with its share.
struct GoldenBatch {
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

  GoldenBatch(const Shape& shape, const Golden& golden)
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
    offsets = offsets_of(lengths);
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

  // Borrowed, with the fixture's labels and weights, memory of the host.
  model::RankingBatch view(const Shape& shape, const Tensor& labels, const Tensor& weights) const {
    model::RankingBatch batch;
    batch.sequences = {.offsets = view_of(offsets),
                       .num_prefix = std::ssize(shape.prefix),
                       .num_targets = view_of(targets),
                       .times = view_of(times)};
    batch.actions = {actions.data(), {std::ssize(actions)}};
    batch.labels = labels.view<float, 2>();
    batch.weights = weights.view<float, 2>();
    return batch;
  }
};

// Rows of the device as a tensor of the host.
template <class T>
Tensor fetched(const Context& ctx, Rows<const T> rows) {
  Tensor out(dtype_of<T>(), {rows.rows, rows.cols}, ctx.device());
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    copy_bytes(ctx, reinterpret_cast<T*>(out.data()) + r * rows.cols, rows.row(r),
               static_cast<std::size_t>(rows.cols) * sizeof(T));
  }
  return to_host(ctx, out);
}

// `few`: the last layer's attention is that of targets alone.
template <class T>
void check_golden_model(const Context& ctx, const Shape& shape, double tolerance, bool few = true) {
  using A = Accum<T>;
  const Golden golden(shape);
  const GoldenBatch batch(shape, golden);
  const model::RankingOptions options = options_of(shape);
  const std::int64_t num_tokens = batch.offsets.back();
  const model::RankingMemory memory = {
      .layers = {.capacity = num_tokens + 3, .sequences = std::ssize(batch.history)},
      .targets = batch.num_targets + 1};
  model::RankingModel<T> model(ctx, options, memory);
  model::ParameterSet<T>& parameters = model.parameters();
  for (int i = 0; i < parameters.size(); ++i) {
    const Tensor value = golden.tensor("p." + parameters.spec(i).name);
    ASSERT_EQ(parameters.value(i).shape(), value.shape()) << parameters.spec(i).name;
    copy_tensor(ctx, parameters.value(i), converted<A, double>(value));
  }
  model.refresh(ctx);
  const auto expect_close = [&](const std::string& what, const Tensor& got, const Tensor& want) {
    EXPECT_LE(max_error(got, want), tolerance * std::max(1.0, max_magnitude(want))) << what;
  };

  Tensor prefix(dtype_of<T>(), {std::ssize(batch.history), options.prefix * kWidthOfRows});
  Tensor items(dtype_of<T>(), {std::ssize(batch.times), options.item_features * kWidthOfRows});
  for (const GoldenBatch::Use& use : batch.uses) {
    const Tensor table = golden.tensor("p.tables." + use.table);
    for (std::int64_t c = 0; c < kWidthOfRows; ++c) {
      T& value = (use.prefix ? prefix : items).template view<T, 2>()(use.row, use.column + c);
      value = convert<T>(convert<A>(value) +
                         static_cast<A>(use.share * table.view<double, 2>()(use.id, c)));
    }
  }
  const Tensor labels = converted<float, double>(golden.tensor("label"));
  const Tensor weights = converted<float, double>(golden.tensor("weight"));
  const model::RankingBatch given = batch.view(shape, labels, weights);
  model::RankingInputs inputs(ctx, options, memory, model::size_of(memory));
  const auto parts = inputs.send(ctx, given);
  ASSERT_EQ(parts.size(), 1u);
  model::RankingStep step = parts[0].step;
  step.norm_length = model::batch_norm_length(given.sequences);
  if (!few) step.most_targets = 0;  // not known
  const Tensor placed_prefix = place(ctx, prefix), placed_items = place(ctx, items);
  const model::RankingRows<const T> rows = {placed_prefix.template view<T, 2>(),
                                            placed_items.template view<T, 2>()};
  const Rows<const T> logits = model.forward(ctx, step, rows);
  for (std::int64_t layer = 0; layer < options.layers; ++layer) {
    const std::string name = "x." + std::to_string(layer);
    expect_close(name, fetched<T>(ctx, model.layer_input(layer, num_tokens)), golden.tensor(name));
  }
  // Of the last layer the targets.
  const Tensor last = golden.tensor("x." + std::to_string(options.layers));
  Tensor of_targets(DType::kF64, {batch.num_targets, options.width});
  std::int64_t target = 0;
  for (std::size_t b = 0; b < batch.targets.size(); ++b) {
    for (std::int64_t i = batch.offsets[b + 1] - batch.targets[b]; i < batch.offsets[b + 1]; ++i) {
      std::copy_n(&last.view<double, 2>()(i, 0), options.width,
                  &of_targets.view<double, 2>()(target++, 0));
    }
  }
  expect_close("the last layer", fetched<T>(ctx, model.target_rows(batch.num_targets)), of_targets);
  expect_close("user", fetched<T>(ctx, model.user_rows(batch.num_targets)), golden.tensor("user"));
  expect_close("item", fetched<T>(ctx, model.item_rows(batch.num_targets)), golden.tensor("item"));
  expect_close("logits", fetched<T>(ctx, logits), golden.tensor("logits"));

  Tensor sums(DType::kF64, {shape.tasks});
  ops::weight_sums(ctx.host(), weights.view<float, 2>(), sums.view<double, 1>());
  const Tensor placed_sums = place(ctx, sums);
  Tensor losses(DType::kF64, {shape.tasks}, ctx.device());
  Tensor dlogits(dtype_of<T>(), {logits.rows, logits.cols}, ctx.device());
  ctx.workspace().reserve(ops::task_loss_workspace_bytes(ctx, logits.rows, logits.cols));
  ops::task_loss<T>(ctx, logits, parts[0].labels, parts[0].weights,
                    {.scale = 20, .weight_sums = placed_sums.view<double, 1>()},
                    losses.view<double, 1>(), dlogits.view<T, 2>());
  double loss = 0;
  for (const double each : vector_of<double>(ctx, losses)) loss += each;
  EXPECT_NEAR(loss, golden.number("loss"), tolerance * golden.number("loss"));

  Tensor dprefix(dtype_of<T>(), prefix.shape(), ctx.device());
  Tensor ditems(dtype_of<T>(), items.shape(), ctx.device());
  model.backward(ctx, step, rows, std::as_const(dlogits).view<T, 2>(),
                 {dprefix.template view<T, 2>(), ditems.template view<T, 2>()});
  dprefix = to_host(ctx, dprefix);
  ditems = to_host(ctx, ditems);
  double squares = 0;
  for (int i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters.spec(i).name;
    const Tensor gradient = to_host(ctx, parameters.gradient(i));
    expect_close("gradient of " + name, gradient, golden.tensor("g." + name));
    for (std::int64_t k = 0; k < gradient.size(); ++k) {
      squares += element(gradient, k) * element(gradient, k);
    }
  }
  EXPECT_NEAR(std::sqrt(squares), golden.number("gradient_norm"),
              tolerance * golden.number("gradient_norm"));
  std::map<std::string, Tensor> tables;
  for (const GoldenBatch::Use& use : batch.uses) {
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
  for (const checkpoint::TensorEntry& entry : golden.file().entries()) {
    gradients += entry.name.starts_with("g.") ? 1 : 0;
  }
  EXPECT_EQ(gradients, parameters.size() + static_cast<int>(tables.size()));
}

// From the fixture's gradients: where one is all but zero, Adam's first step is its sign.
inline void check_golden_optimisers(const Context& ctx, const Shape& shape) {
  const Golden golden(shape);
  const auto floats = [](Tensor& tensor) { return reinterpret_cast<float*>(tensor.data()); };
  const auto placed = [&](const std::string& name) {
    return place(ctx, converted<float, double>(golden.tensor(name)));
  };
  struct Dense {
    std::string name;
    Tensor weight, gradient, first, second;
  };
  std::vector<Dense> dense;
  std::vector<std::string> tables;
  for (const checkpoint::TensorEntry& entry : golden.file().entries()) {
    if (!entry.name.starts_with("p.")) continue;
    const std::string name = entry.name.substr(2);
    if (name.starts_with("tables.")) {
      tables.push_back(name.substr(7));
      continue;
    }
    dense.push_back({name, placed("p." + name), placed("g." + name),
                     Tensor(DType::kF32, entry.shape, ctx.device()),
                     Tensor(DType::kF32, entry.shape, ctx.device())});
  }
  std::vector<ops::UpdateSlice> slices;
  for (Dense& each : dense) {
    slices.push_back({floats(each.weight), floats(each.gradient), floats(each.first),
                      floats(each.second), each.weight.size()});
  }
  const ops::UpdateSlices all(ctx, slices);
  ctx.workspace().reserve(ops::squared_sum_workspace_bytes(ctx, all));
  Tensor numbers(DType::kF64, {5}, ctx.device());  // a StepScale, and the squares
  auto* const scale = reinterpret_cast<ops::StepScale*>(numbers.data());
  double* const squares = numbers.view<double, 1>().data + 4;
  ops::squared_sum(ctx, all, squares);
  ops::make_step_scale(ctx, {squares, {1}}, {nullptr, {0}}, {.clip = 1}, scale);
  const double norm = vector_of<double>(ctx, numbers)[2];
  EXPECT_NEAR(norm, golden.number("gradient_norm"), 1e-5 * norm);
  ops::adamw(ctx, all, {.rate = 0.01, .beta1 = 0.95, .beta2 = 0.999}, scale);
  for (const Dense& each : dense) {
    EXPECT_LE(max_error(to_host(ctx, each.weight), golden.tensor("after." + each.name)), 2e-6)
        << each.name;
  }

  for (const std::string& name : tables) {
    Tensor weight = placed("p.tables." + name), second = placed("acc0." + name);
    const Tensor gradient = placed("g.tables." + name);
    std::vector<std::int64_t> ids;
    for (std::int64_t id = 0; id < weight.shape()[0]; ++id) ids.push_back(id);
    const Tensor all_ids = place(ctx, tensor_of(ids));
    ops::update_rows(
        ctx, ops::RowOptimiser::kAdaGrad,
        {.weight = weight.view<float, 2>(), .second_moment = {floats(second), {second.size(), 1}}},
        all_ids.view<std::int64_t, 1>(), gradient.view<float, 2>(),
        {.rate = 0.01, .epsilon_outside = true}, nullptr);
    EXPECT_LE(max_error(to_host(ctx, weight), golden.tensor("after.tables." + name)), 2e-6) << name;
    const Tensor sums = to_host(ctx, second);
    EXPECT_LE(max_error(sums, golden.tensor("acc1." + name)),
              1e-6 * std::max(1.0, max_magnitude(sums)))
        << name;
  }
}

}  // namespace turbogr::test
