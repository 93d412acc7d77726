#include "turbogr/eval/click_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "tests/support/messages.h"
#include "turbogr/core/philox.h"

namespace turbogr::eval {
namespace {

using test::message_of;

ClickFigures figures_of(const std::vector<ScoredTarget>& targets) {
  ClickMetrics metrics;
  for (const ScoredTarget& target : targets) metrics.add(target);
  return metrics.figures();
}

// Few distinct probabilities, so that many are equal; some groups of one class.
std::vector<ScoredTarget> random_targets(std::int64_t count, bool weighted) {
  PhiloxStream random(7);
  std::vector<ScoredTarget> targets;
  for (std::int64_t i = 0; i < count; ++i) {
    ScoredTarget target;
    target.group = static_cast<std::int64_t>(random.below(23)) - 5;
    target.probability = static_cast<double>(random.below(11)) / 10;
    target.positive = target.group == 3 || random.below(3) == 0;
    if (weighted) target.weight = static_cast<double>(random.below(5)) / 4;
    targets.push_back(target);
  }
  return targets;
}

// Every pair of a positive and a negative.
std::optional<double> auc_by_pairs(const std::vector<ScoredTarget>& targets) {
  double right = 0;
  double all = 0;
  for (const ScoredTarget& yes : targets) {
    for (const ScoredTarget& no : targets) {
      if (!yes.positive || no.positive) continue;
      const double weight = yes.weight * no.weight;
      all += weight;
      if (yes.probability > no.probability) right += weight;
      if (yes.probability == no.probability) right += weight / 2;
    }
  }
  return all > 0 ? std::optional(right / all) : std::nullopt;
}

TEST(ClickMetrics, CountsPairsInOrderAndTiesByHalf) {
  EXPECT_EQ(figures_of({{.probability = 0.9, .positive = true}, {.probability = 0.1}}).auc, 1.0);
  EXPECT_EQ(figures_of({{.probability = 0.1, .positive = true}, {.probability = 0.9}}).auc, 0.0);
  EXPECT_EQ(figures_of({{.probability = 0.5, .positive = true}, {.probability = 0.5}}).auc, 0.5);
  // Positives 0.2 and 0.6 against negatives 0.2, 0.4: a half, 0, 1 and 1.
  EXPECT_EQ(figures_of({{.probability = 0.2, .positive = true},
                        {.probability = 0.2},
                        {.probability = 0.4},
                        {.probability = 0.6, .positive = true}})
                .auc,
            2.5 / 4);
  // A pair weighs the product of its weights: 3 x 1 right, 1 x 1 wrong.
  EXPECT_EQ(figures_of({{.probability = 0.2, .positive = true},
                        {.probability = 0.4, .weight = 1},
                        {.probability = 0.6, .positive = true, .weight = 3}})
                .auc,
            3.0 / 4);
}

TEST(ClickMetrics, AFigureThatDoesNotExistHasNoValue) {
  const ClickFigures nothing = figures_of({});
  EXPECT_EQ(nothing.targets, 0);
  EXPECT_FALSE(nothing.auc || nothing.gauc || nothing.gauc_by_targets);
  EXPECT_FALSE(nothing.normalized_entropy || nothing.accuracy);

  const ClickFigures one_class = figures_of({{.probability = 0.75, .positive = true}});
  EXPECT_FALSE(one_class.auc || one_class.gauc);
  EXPECT_EQ(one_class.accuracy, 1.0);

  // Both classes, never in one group.
  const ClickFigures apart = figures_of(
      {{.probability = 0.7, .positive = true, .group = 1}, {.probability = 0.1, .group = 2}});
  EXPECT_EQ(apart.auc, 1.0);
  EXPECT_EQ(apart.groups, 0);
  EXPECT_FALSE(apart.gauc || apart.gauc_by_targets);
}

TEST(ClickMetrics, GroupsWeighTheSameOrByTheirTargetsAndThoseOfOneClassAreSkipped) {
  const ClickFigures figures = figures_of({{.probability = 0.9, .positive = true, .group = 1},
                                           {.probability = 0.1, .group = 1},
                                           {.probability = 0.2, .positive = true, .group = 2},
                                           {.probability = 0.3, .group = 2},
                                           {.probability = 0.2, .group = 2},
                                           {.probability = 0.1, .group = 2},
                                           {.probability = 0.4, .positive = true, .group = 3}});
  EXPECT_EQ(figures.groups, 2);
  EXPECT_DOUBLE_EQ(figures.gauc.value(), (1.0 + 0.5) / 2);
  EXPECT_DOUBLE_EQ(figures.gauc_by_targets.value(), (2 * 1.0 + 4 * 0.5) / 6);
}

TEST(ClickMetrics, AgreesWithCountingAllPairs) {
  for (const bool weighted : {false, true}) {
    const std::vector<ScoredTarget> targets = random_targets(400, weighted);
    const ClickFigures figures = figures_of(targets);
    EXPECT_NEAR(figures.auc.value(), auc_by_pairs(targets).value(), 1e-13);

    std::map<std::int64_t, std::vector<ScoredTarget>> groups;
    for (const ScoredTarget& target : targets) {
      if (target.weight > 0) groups[target.group].push_back(target);
    }
    double sum = 0;
    double sum_by_targets = 0;
    double counted = 0;
    std::int64_t both = 0;
    for (const auto& [group, members] : groups) {
      const std::optional<double> auc = auc_by_pairs(members);
      if (!auc) continue;
      ++both;
      sum += *auc;
      sum_by_targets += *auc * static_cast<double>(members.size());
      counted += static_cast<double>(members.size());
    }
    EXPECT_EQ(figures.groups, both);
    EXPECT_LT(both, std::ssize(groups));
    EXPECT_NEAR(figures.gauc.value(), sum / static_cast<double>(both), 1e-13);
    EXPECT_NEAR(figures.gauc_by_targets.value(), sum_by_targets / counted, 1e-13);
  }
}

TEST(ClickMetrics, EntropyAndAccuracyFollowTheirFormulas) {
  const ClickFigures figures = figures_of({{.probability = 0.8, .positive = true, .weight = 2},
                                           {.probability = 0.4, .positive = true},
                                           {.probability = 0.5},
                                           {.probability = 1.0, .weight = 0}});
  EXPECT_EQ(figures.targets, 3);
  const double entropy = -(2 * std::log2(0.8) + std::log2(0.4) + std::log2(0.5));
  const double baseline = -3 * std::log2(0.75) - std::log2(0.25);
  EXPECT_NEAR(figures.normalized_entropy.value(), entropy / baseline, 1e-15);
  EXPECT_DOUBLE_EQ(figures.accuracy.value(), 2.0 / 4);
  // A certain and wrong prediction costs much, and stays finite.
  const ClickFigures sure =
      figures_of({{.probability = 0, .positive = true}, {.probability = 1}, {.probability = 0.5}});
  EXPECT_TRUE(std::isfinite(sure.normalized_entropy.value()));
  EXPECT_GT(sure.normalized_entropy.value(), 20);
  // Always the share of positives: exactly 1.
  EXPECT_DOUBLE_EQ(figures_of({{.probability = 0.25, .positive = true},
                               {.probability = 0.25},
                               {.probability = 0.25},
                               {.probability = 0.25}})
                       .normalized_entropy.value(),
                   1.0);
}

// Forty targets, from the largest probability to the smallest; every fourth is positive.
TEST(ClickMetrics, CalibrationComparesWhatWasSaidWithWhatCameTrue) {
  std::vector<ScoredTarget> targets;
  for (int i = 39; i >= 0; --i) {
    targets.push_back({.probability = i / 64.0, .positive = i % 4 == 0 || i == 39});
  }
  const std::vector<CalibrationBin> bins = figures_of(targets).calibration;
  ASSERT_EQ(bins.size(), 10u);
  for (std::size_t b = 0; b < bins.size(); ++b) {
    EXPECT_EQ(bins[b].targets, 4) << b;
    EXPECT_EQ(bins[b].predicted, (4.0 * static_cast<double>(b) + 1.5) / 64) << b;
    EXPECT_EQ(bins[b].observed, b == 9 ? 0.5 : 0.25) << b;
  }
  EXPECT_TRUE(figures_of({}).calibration.empty());
  EXPECT_EQ(figures_of({{.probability = 0.1}, {.probability = 0.3}, {.probability = 0.2}})
                .calibration.size(),
            3u);
}

// Ninety of a hundred have one probability: the order they came in must not decide who is where.
TEST(ClickMetrics, CalibrationKeepsTiesTogetherAndWeighsTargets) {
  std::vector<ScoredTarget> targets = {{.probability = 0.25, .positive = true, .weight = 3},
                                       {.probability = 0.5, .weight = 1}};
  std::vector<CalibrationBin> bins = figures_of(targets).calibration;
  ASSERT_EQ(bins.size(), 2u);
  EXPECT_EQ(bins[0].observed, 1);
  targets[1].probability = 0.25;
  bins = figures_of(targets).calibration;
  ASSERT_EQ(bins.size(), 1u);
  EXPECT_EQ(bins[0].targets, 2);
  EXPECT_EQ(bins[0].predicted, 0.25);
  EXPECT_EQ(bins[0].observed, 0.75);
  targets.clear();
  for (int i = 0; i < 100; ++i) {
    targets.push_back({.probability = i < 5 ? i / 16.0 : i < 95 ? 0.5 : 1, .positive = i % 2 == 0});
  }
  bins = figures_of(targets).calibration;
  ASSERT_EQ(bins.size(), 2u);
  EXPECT_EQ(bins[0].targets, 95);
  EXPECT_EQ(bins[1].targets, 5);
  EXPECT_EQ(bins[1].predicted, 1);
  EXPECT_EQ(bins[1].observed, 0.4);
}

TEST(ClickMetrics, GroupsHaveTwoNames) {
  EXPECT_EQ(group_by_from_name("user"), GroupBy::kUser);
  EXPECT_EQ(group_by_from_name("request"), GroupBy::kRequest);
  EXPECT_EQ(message_of([] { group_by_from_name("item"); }),
            "unknown groups 'item'; use user or request");
}

TEST(ClickMetrics, AnyNumberOfRanksGivesTheSameBits) {
  const std::vector<ScoredTarget> targets = random_targets(300, true);
  const ClickFigures wanted = figures_of(targets);
  EXPECT_GT(wanted.calibration.size(), 5u);
  for (const int size : {1, 2, 3}) {
    dist::run_threads(size, [&](dist::Communicator& ranks) {
      ClickMetrics metrics;
      // Groups straddle ranks, and the last rank has fewer than its share.
      for (std::size_t i = 0; i < targets.size(); ++i) {
        const int owner = i % 7 == 0 ? 0 : static_cast<int>(i) % size;
        if (owner == ranks.rank()) metrics.add(targets[i]);
      }
      metrics.add_up(ranks);
      const ClickFigures got = metrics.figures();
      TGR_CHECK(got.targets == wanted.targets && got.groups == wanted.groups, "counts differ");
      TGR_CHECK(got.auc == wanted.auc && got.gauc == wanted.gauc, "an AUC differs");
      TGR_CHECK(got.gauc_by_targets == wanted.gauc_by_targets, "an AUC differs");
      TGR_CHECK(got.normalized_entropy == wanted.normalized_entropy, "the entropy differs");
      TGR_CHECK(got.accuracy == wanted.accuracy, "the accuracy differs");
      TGR_CHECK(got.calibration.size() == wanted.calibration.size(), "bins differ");
      for (std::size_t b = 0; b < wanted.calibration.size(); ++b) {
        const CalibrationBin &a = got.calibration[b], &c = wanted.calibration[b];
        TGR_CHECK(a.targets == c.targets && a.predicted == c.predicted && a.observed == c.observed,
                  "bin ", b, " differs");
      }
    });
  }
}

TEST(ClickMetrics, ClearsAndSaysWhatIsWrong) {
  ClickMetrics metrics;
  metrics.add({.probability = 0.5, .positive = true});
  metrics.clear();
  EXPECT_EQ(metrics.figures().targets, 0);
  EXPECT_EQ(message_of([&] { metrics.add({.probability = 1.5}); }),
            "a target's probability is 1.5; it must be 0 to 1: has the model diverged?");
  EXPECT_NE(message_of([&] { metrics.add({.probability = std::nan("")}); }), "");
  EXPECT_EQ(message_of([&] { metrics.add({.probability = 0.5, .weight = -1}); }),
            "a target's weight is -1; it must be finite and at least 0");
}

TEST(ErrorMetrics, MeansAreWeightedAndAddUpOverRanks) {
  EXPECT_FALSE(ErrorMetrics().mean_squared() || ErrorMetrics().mean_absolute());
  dist::run_threads(2, [](dist::Communicator& ranks) {
    ErrorMetrics metrics;
    if (ranks.rank() == 0) metrics.add(3, 1, 0.5);
    if (ranks.rank() == 1) metrics.add(-1, 0, 1.5);
    metrics.add_up(ranks);
    TGR_CHECK(metrics.mean_squared() == (0.5 * 4 + 1.5) / 2, "the squared error");
    TGR_CHECK(metrics.mean_absolute() == (0.5 * 2 + 1.5) / 2, "the absolute error");
  });
}

}  // namespace
}  // namespace turbogr::eval
