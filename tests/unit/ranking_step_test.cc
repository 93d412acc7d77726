// A training step of the ranking task: against an independent implementation (tests/fixtures), on
// one rank and on several, on one thread and on several.
#include "turbogr/train/ranking_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/golden_ranking.h"
#include "tests/support/messages.h"
#include "tests/support/ranking_training.h"
#include "tests/support/tolerance.h"
#include "tests/support/whole_table.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/local_rows.h"
#include "turbogr/embedding/sharded_rows.h"

namespace turbogr::train {
namespace {

using model::Pooling;
using test::Golden;
using test::kItems;
using test::kSequences;
using test::message_of;
using test::OwnedRankingBatch;
using test::ranking_share;
using test::Shape;
using test::small_ranking_training;
using test::tables_of;

// The step of a fixture.

struct GoldenStep {
  RankingTrainOptions options;
  std::vector<std::string> tables;
  OwnedRankingBatch batch;

  GoldenStep(const Shape& shape, const Golden& golden) {
    options = {.model = test::options_of(shape), .loss_scale = 20, .norm_by_batch = true};
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
      const Tensor values = test::converted<float, double>(golden.tensor(name));
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
    options.features.items.push_back({.name = name,
                                      .table = table(name, golden),
                                      .pooling = many > 1 ? Pooling::kMean : Pooling::kOne,
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

void run_golden(const Shape& shape) {
  const Golden golden(shape);
  GoldenStep given(shape, golden);
  given.options.model.norm_length = 1;  // the batch's counts
  const Context ctx({.threads = 2});
  const auto alone = dist::make_self();
  embedding::LocalRows<float> rows(tables_of(given.options), Device::kCpu);
  RankingTrainStep<float> step(ctx, *alone, given.options, rows);
  for (std::size_t t = 0; t < given.tables.size(); ++t) {
    rows.shard(t).weight_tensor() =
        test::converted<float, double>(golden.tensor("p.tables." + given.tables[t]));
    const Tensor start = test::converted<float, double>(golden.tensor("acc0." + given.tables[t]));
    ASSERT_EQ(start.size(), rows.shard(t).second_moment().size());
    std::copy_n(start.data(), start.bytes(), rows.shard(t).second_moment().data());
  }
  auto& parameters = step.model().parameters();
  for (int i = 0; i < parameters.size(); ++i) {
    const Tensor start =
        test::converted<float, double>(golden.tensor("p." + parameters.spec(i).name));
    std::copy_n(start.data(), start.bytes(), parameters.value(i).data());
  }
  step.refresh(ctx);

  const RankingResult result = step.run(ctx, given.batch.view());
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
    const Tensor after = golden.tensor("after." + name), gradient = golden.tensor("g." + name);
    const double unsure = 2e-5 * std::max(1.0, test::max_magnitude(gradient));
    for (std::int64_t k = 0; k < after.size(); ++k, ++all) {
      const double g = std::abs(test::element(gradient, k));
      // A step of rate * g / (g + epsilon) of the clipped gradient.
      const double off = g > unsure ? 2e-6 + 0.01 * 1e-8 * norm * unsure / (g * g) : 0.0201;
      signs += g > unsure ? 0 : 1;
      ASSERT_NEAR(test::element(parameters.value(i), k), test::element(after, k), off)
          << name << ' ' << k;
    }
  }
  EXPECT_LT(signs, all / 20);
  for (std::size_t t = 0; t < given.tables.size(); ++t) {
    const std::string& name = given.tables[t];
    EXPECT_LE(test::max_error(rows.shard(t).weight_tensor(), golden.tensor("after.tables." + name)),
              2e-6)
        << name;
    const Tensor wanted = golden.tensor("acc1." + name);
    EXPECT_LE(test::max_error(rows.shard(t).second_moment(), wanted),
              2e-5 * std::max(1.0, test::max_magnitude(wanted)))
        << name;
  }
}

TEST(RankingStep, OfManyTargetsMatchesAnotherImplementation) { run_golden(test::kManyTargets); }
TEST(RankingStep, OfManyPrefixesMatchesAnotherImplementation) { run_golden(test::kManyPrefixes); }

constexpr int kSteps = 6;

struct Outcome {
  std::vector<RankingResult> results;
  std::vector<std::vector<float>> tables, accumulators;
  std::vector<float> dense;
};

template <class T>
std::vector<float> dense_of(RankingTrainStep<T>& step) {
  std::vector<float> all;
  for (int i = 0; i < step.model().parameters().size(); ++i) {
    const Tensor& value = step.model().parameters().value(i);
    const auto* values = reinterpret_cast<const float*>(value.data());
    all.insert(all.end(), values, values + value.size());
  }
  return all;
}

template <class T>
Outcome train(const Context& ctx, dist::Communicator& world, embedding::RowSource<T>& rows,
              const RankingTrainOptions& options, int steps = kSteps, int different = kSteps) {
  RankingTrainStep<T> step(ctx, world, options, rows);
  step.initialise(ctx);
  Outcome outcome;
  for (int s = 0; s < steps; ++s) {
    OwnedRankingBatch batch = ranking_share(s % different, world.rank(), world.size());
    outcome.results.push_back(step.run(ctx, batch.view()));
  }
  for (std::size_t t = 0; t < options.features.table_rows.size(); ++t) {
    outcome.tables.push_back(test::whole_of(ctx, rows, rows.shard(t).weight_tensor(), t));
    outcome.accumulators.push_back(test::whole_of(ctx, rows, rows.shard(t).second_moment(), t));
  }
  outcome.dense = dense_of(step);
  return outcome;
}

template <class T>
Outcome train_alone(const RankingTrainOptions& options, int threads = 1, int steps = kSteps,
                    int different = kSteps) {
  const Context ctx({.threads = threads});
  const auto alone = dist::make_self();
  embedding::LocalRows<T> rows(tables_of(options), Device::kCpu);
  return train<T>(ctx, *alone, rows, options, steps, different);
}

// Every rank must tell the same.
Outcome train_on_ranks(const RankingTrainOptions& options, int ranks, int group) {
  Outcome outcome;
  std::mutex mutex;
  dist::run_threads(ranks, [&](dist::Communicator& world) {
    const Context ctx({.threads = 1});
    embedding::ShardedRows<float> rows(ctx, ctx, world, tables_of(options), Device::kCpu,
                                       {.topology = dist::make_topology(world.nodes(), group)});
    Outcome own = train<float>(ctx, world, rows, options);
    const std::lock_guard lock(mutex);
    if (outcome.results.empty()) {
      outcome = std::move(own);
      return;
    }
    TGR_CHECK(outcome.tables == own.tables && outcome.dense == own.dense, "ranks differ");
    for (std::size_t s = 0; s < own.results.size(); ++s) {
      TGR_CHECK(outcome.results[s].loss == own.results[s].loss, "ranks differ in step ", s);
    }
  });
  return outcome;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  EXPECT_LT(most, tolerance) << what;
}

// Up to the order of sums, which ranks change.
TEST(RankingStep, AnyNumberOfRanksIsOneRankUpToRounding) {
  const Outcome alone = train_alone<float>(small_ranking_training());
  EXPECT_EQ(alone.results[0].rate, 0);
  EXPECT_EQ(alone.results[1].rate, 0.01);
  EXPECT_EQ(alone.results[2].rate, 0.02);
  for (const auto& [ranks, group] :
       {std::pair{1, 1}, std::pair{2, 2}, std::pair{4, 4}, std::pair{4, 2}, std::pair{12, 12}}) {
    const std::string what = std::to_string(ranks) + " ranks in groups of " + std::to_string(group);
    const Outcome many = train_on_ranks(small_ranking_training(), ranks, group);
    ASSERT_EQ(many.results.size(), alone.results.size());
    if (ranks == 1) {  // nothing is summed in another order
      EXPECT_TRUE(many.dense == alone.dense && many.tables == alone.tables);
    }
    for (std::size_t s = 0; s < alone.results.size(); ++s) {
      const RankingResult &a = alone.results[s], &b = many.results[s];
      EXPECT_NEAR(a.loss, b.loss, 5e-7) << what << ", step " << s;
      EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-5) << what << ", step " << s;
      EXPECT_EQ(a.tokens, b.tokens);
      EXPECT_EQ(a.predicting, b.predicting);
      EXPECT_EQ(a.out_of_range, b.out_of_range);
      EXPECT_EQ(a.rate, b.rate);
    }
    expect_near(alone.dense, many.dense, 2e-6, what);
    for (std::size_t t = 0; t < alone.tables.size(); ++t) {
      expect_near(alone.tables[t], many.tables[t], 2e-6, what + ", a table");
      expect_near(alone.accumulators[t], many.accumulators[t], 2e-6, what + ", accumulators");
    }
  }
}

TEST(RankingStep, OneThreadOrSeveralAreTheSameBits) {
  const Outcome one = train_alone<float>(small_ranking_training());
  const Outcome several = train_alone<float>(small_ranking_training(), 3);
  EXPECT_TRUE(one.dense == several.dense);
  EXPECT_TRUE(one.tables == several.tables);
  EXPECT_TRUE(one.accumulators == several.accumulators);
  for (std::size_t s = 0; s < one.results.size(); ++s) {
    EXPECT_EQ(one.results[s].loss, several.results[s].loss) << s;
  }
}

template <class T>
void expect_learns() {
  RankingTrainOptions options = small_ranking_training();
  options.dense.epsilon = options.table.epsilon = 1e-8;
  options.model.input_dropout = options.model.dropout = 0;
  const Outcome outcome = train_alone<T>(options, 2, 20, 2);
  const auto mean = [&](std::size_t first) {
    return (outcome.results[first].loss + outcome.results[first + 1].loss) / 2;
  };
  EXPECT_LT(mean(18), 0.3 * mean(0));
}
TEST(RankingStep, Learns) { expect_learns<float>(); }
TEST(RankingStep, LearnsInBf16) { expect_learns<bf16>(); }

// Labels, actions of targets, and other targets of the same sequence.
TEST(RankingStep, LabelsAndOtherTargetsAreNeverSeen) {
  const RankingTrainOptions options = small_ranking_training();
  const Context ctx({.threads = 1});
  const auto logits_of = [&](auto change, double* loss = nullptr) {
    const auto alone = dist::make_self();
    embedding::LocalRows<float> rows(tables_of(options), Device::kCpu);
    RankingTrainStep<float> step(ctx, *alone, options, rows);
    step.initialise(ctx);
    OwnedRankingBatch batch = ranking_share(0, 0, 1);
    change(batch);
    const RankingResult result = step.run(ctx, batch.view());
    if (loss != nullptr) *loss = result.loss;
    const Rows<const float> logits = step.logits();
    return std::vector<float>(logits.data, logits.data + logits.rows * logits.cols);
  };
  OwnedRankingBatch batch = ranking_share(0, 0, 1);
  double loss = 0, other_loss = 0;
  const std::vector<float> wanted = logits_of([](OwnedRankingBatch&) {}, &loss);
  EXPECT_EQ(logits_of([](OwnedRankingBatch& other) { other.labels[0] = 1 - other.labels[0]; },
                      &other_loss),
            wanted);
  EXPECT_NE(loss, other_loss);
  std::int64_t target = 0, tried = 0;
  for (std::size_t b = 0; b < batch.num_targets.size(); ++b) {
    const std::int64_t targets = batch.num_targets[b];
    // Its last event: tokens without the prefixes.
    const auto last = static_cast<std::size_t>(batch.offsets[b + 1]) - 2 * (b + 1) - 1;
    target += targets;
    EXPECT_EQ(logits_of([&](OwnedRankingBatch& other) { other.actions[last] ^= 3; }), wanted) << b;
    if (targets < 2) continue;
    ++tried;
    const std::vector<float> got = logits_of(
        [&](OwnedRankingBatch& other) { other.ids[2][last] = (other.ids[2][last] + 7) % kItems; });
    for (std::int64_t t = 0; t < std::ssize(wanted) / 2; ++t) {
      const auto at = static_cast<std::size_t>(2 * t);
      EXPECT_EQ(got[at] == wanted[at] && got[at + 1] == wanted[at + 1], t != target - 1)
          << "sequence " << b << ", target " << t;
    }
  }
  EXPECT_GT(tried, 2);
}

TEST(RankingStep, ABadNumberChangesNothing) {
  const RankingTrainOptions options = small_ranking_training();
  dist::run_threads(2, [&](dist::Communicator& world) {
    const Context ctx({.threads = 1});
    embedding::ShardedRows<float> rows(ctx, ctx, world, tables_of(options), Device::kCpu,
                                       {.topology = dist::make_topology(world.nodes(), 2)});
    RankingTrainStep<float> step(ctx, world, options, rows);
    step.initialise(ctx);
    step.set_steps_done(10);
    OwnedRankingBatch batch = ranking_share(0, world.rank(), 2);
    if (world.rank() == 1) batch.labels[0] = std::numeric_limits<float>::quiet_NaN();
    const auto table = [&] { return test::whole_of(ctx, rows, rows.shard(0).weight_tensor()); };
    const std::vector<float> dense = dense_of(step), items = table();
    const RankingResult bad = step.run(ctx, batch.view());
    EXPECT_FALSE(bad.finite);
    EXPECT_EQ(bad.rate, 0);
    EXPECT_EQ(dense_of(step), dense);
    EXPECT_EQ(table(), items);
    if (world.rank() == 1) batch.labels[0] = 1;
    EXPECT_TRUE(step.run(ctx, batch.view()).finite);
    EXPECT_NE(dense_of(step), dense);
    EXPECT_NE(table(), items);
  });
}

TEST(RankingStep, SaysWhatIsWrong) {
  const Context ctx({.threads = 1});
  const auto alone = dist::make_self();
  const auto refusal = [&](auto change) {
    RankingTrainOptions options = small_ranking_training();
    embedding::LocalRows<float> rows(tables_of(options), Device::kCpu);
    change(options);
    return message_of([&] { RankingTrainStep<float>(ctx, *alone, options, rows); });
  };
  EXPECT_EQ(refusal([](RankingTrainOptions&) {}), "");
  EXPECT_EQ(refusal([](RankingTrainOptions& o) { o.features.table_rows[1] = 99; }),
            "table 1 is [12, 6]; its features want [99, 6]");
  EXPECT_EQ(refusal([](RankingTrainOptions& o) { o.features.items.pop_back(); }),
            "2 prefix and 1 item features for a model of 2 and 2");
  EXPECT_NE(message_of([&] {
              dist::run_threads(2, [&](dist::Communicator& world) {
                const Context own({.threads = 1});
                embedding::LocalRows<float> rows(tables_of(small_ranking_training()), Device::kCpu);
                RankingTrainStep<float>(own, world, small_ranking_training(), rows);
              });
            }).find("tables that one rank holds for 2 ranks"),
            std::string::npos);
  embedding::LocalRows<float> rows(tables_of(small_ranking_training()), Device::kCpu);
  RankingTrainStep<float> step(ctx, *alone, small_ranking_training(), rows);
  OwnedRankingBatch none = ranking_share(0, static_cast<int>(kSequences), 1);
  EXPECT_EQ(message_of([&] { step.run(ctx, none.view()); }),
            "a step without targets on any rank; the batches are empty");
}

}  // namespace
}  // namespace turbogr::train
