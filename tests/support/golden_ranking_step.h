// A whole training step of the ranking task on either device against an independent implementation
// (tests/fixtures/ranking).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/golden_ranking.h"
#include "tests/support/on_device.h"
#include "tests/support/ranking_training.h"
#include "tests/support/tolerance.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/train/ranking_trainer.h"

namespace turbogr::test {

struct GoldenStep {
  train::RankingTrainOptions options;
  std::vector<std::string> tables;
  OwnedRankingBatch batch;

  GoldenStep(const Shape& shape, const Golden& golden) {
    options = {.model = options_of(shape), .loss_scale = 20, .norm_by_batch = true};
    options.dense.rate = options.table.rate = 0.01;
    batch.num_prefix = std::ssize(shape.prefix);
    batch.tasks = shape.tasks;
    batch.times = golden.integers("when");
    batch.num_targets = golden.integers("m");
    const std::vector<std::int64_t> history = golden.integers("h");
    const std::vector<std::int64_t> bits = golden.integers("action");
    std::size_t next = 0;
    for (std::size_t b = 0; b < history.size(); ++b) {
      const std::int64_t targets = batch.num_targets[b];
      batch.offsets.push_back(batch.offsets.back() + batch.num_prefix + history[b] + targets);
      for (std::int64_t j = 0; j < history[b]; ++j) {
        batch.actions.push_back(static_cast<std::uint32_t>(bits.at(next++)));
      }
      batch.actions.insert(batch.actions.end(), static_cast<std::size_t>(targets), 0);
    }
    const std::vector<std::int64_t> context = golden.integers("context");
    for (std::size_t k = 0; k < shape.prefix.size(); ++k) {
      options.features.prefix.push_back({.name = shape.prefix[k].table,
                                         .table = table(shape.prefix[k].table, golden),
                                         .least_events = shape.prefix[k].least_length});
      std::vector<std::int64_t>& own = batch.ids.emplace_back();
      batch.bags.emplace_back();
      for (std::size_t b = 0; b < history.size(); ++b) {
        own.push_back(context[b * shape.prefix.size() + k]);
      }
    }
    for (const std::string& name : shape.items) add_items(name, golden);
    const auto floats = [&](const char* name) {
      const Tensor values = converted<float, double>(golden.tensor(name));
      const auto* data = reinterpret_cast<const float*>(values.data());
      return std::vector<float>(data, data + values.size());
    };
    batch.labels = floats("label");
    batch.weights = floats("weight");
    options.memory = {
        .layers = {.capacity = batch.offsets.back() + 3, .sequences = std::ssize(history)},
        .targets = std::ssize(batch.labels) / shape.tasks};
  }

  std::size_t table(const std::string& name, const Golden& golden) {
    const auto at = std::find(tables.begin(), tables.end(), name);
    if (at != tables.end()) return static_cast<std::size_t>(at - tables.begin());
    tables.push_back(name);
    options.features.table_rows.push_back(golden.file().at("p.tables." + name).shape[0]);
    return tables.size() - 1;
  }
  // A bag where there are several ids an event, -1 where there are fewer.
  void add_items(const std::string& name, const Golden& golden) {
    const std::vector<std::int64_t> ids = golden.integers("id." + name);
    const std::size_t many = ids.size() / batch.times.size();
    options.features.items.push_back(
        {.name = name,
         .table = table(name, golden),
         .pooling = many > 1 ? model::Pooling::kMean : model::Pooling::kOne,
         .most_ids = static_cast<std::int64_t>(many)});
    std::vector<std::int64_t>& own = batch.ids.emplace_back();
    std::vector<std::int64_t>& bags = batch.bags.emplace_back();
    if (many > 1) bags.push_back(0);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= 0) own.push_back(ids[i]);
      if (many > 1 && (i + 1) % many == 0) bags.push_back(std::ssize(own));
    }
  }
};

// One step in f32 from the fixture's weights: its loss, its gradient's norm, and everything it
// updates.
inline void check_golden_step(const Context& ctx, const Shape& shape) {
  const Golden golden(shape);
  GoldenStep given(shape, golden);
  given.options.model.norm_length = 1;  // the batch's counts
  const auto alone = dist::make_self();
  given.options.tables = tables_of(given.options);
  given.options.table_memory = ctx.device();
  train::RankingTrainer<float> step(ctx, *alone, given.options);
  embedding::RowSource<float>& rows = step.rows();
  const auto start = [&](Tensor& to, const std::string& name) {
    const Tensor from = converted<float, double>(golden.tensor(name));
    ASSERT_EQ(from.size(), to.size()) << name;
    Tensor shaped(DType::kF32, to.shape());
    std::copy_n(from.data(), from.bytes(), shaped.data());
    copy_tensor(ctx, to, shaped);
  };
  for (std::size_t t = 0; t < given.tables.size(); ++t) {
    start(rows.shard(t).weight_tensor(), "p.tables." + given.tables[t]);
    start(rows.shard(t).second_moment(), "acc0." + given.tables[t]);
  }
  auto& parameters = step.model().parameters();
  for (int i = 0; i < parameters.size(); ++i) {
    start(parameters.value(i), "p." + parameters.spec(i).name);
  }
  step.refresh(ctx);

  const train::RankingResult result = step.run(ctx, given.batch.view());
  EXPECT_TRUE(result.finite);
  EXPECT_EQ(result.out_of_range, 0);
  EXPECT_NEAR(result.loss, golden.number("loss"), 2e-5 * golden.number("loss"));
  const double norm = golden.number("gradient_norm");
  EXPECT_NEAR(result.gradient_norm, norm, 2e-5 * norm);
  EXPECT_GT(norm, given.options.clip) << "nothing is clipped";

  // Adam's first step is a gradient's sign: where rounding decides that, only its size is known.
  std::int64_t signs = 0, all = 0;
  for (int i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters.spec(i).name;
    const Tensor got = to_host(ctx, parameters.value(i));
    const Tensor after = golden.tensor("after." + name), gradient = golden.tensor("g." + name);
    const double unsure = 2e-5 * std::max(1.0, max_magnitude(gradient));
    for (std::int64_t k = 0; k < after.size(); ++k, ++all) {
      const double g = std::abs(element(gradient, k));
      // A step of rate * g / (g + epsilon) of the clipped gradient.
      const double off = g > unsure ? 2e-6 + 0.01 * 1e-8 * norm * unsure / (g * g) : 0.0201;
      signs += g > unsure ? 0 : 1;
      ASSERT_NEAR(element(got, k), element(after, k), off) << name << ' ' << k;
    }
  }
  EXPECT_LT(signs, all / 20);
  for (std::size_t t = 0; t < given.tables.size(); ++t) {
    const std::string& name = given.tables[t];
    EXPECT_LE(max_error(to_host(ctx, rows.shard(t).weight_tensor()),
                        golden.tensor("after.tables." + name)),
              2e-6)
        << name;
    const Tensor wanted = golden.tensor("acc1." + name);
    EXPECT_LE(max_error(to_host(ctx, rows.shard(t).second_moment()), wanted),
              2e-5 * std::max(1.0, max_magnitude(wanted)))
        << name;
  }
}

}  // namespace turbogr::test
