#include "turbogr/run/ranking_figures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/ranking_training.h"
#include "turbogr/embedding/local_rows.h"

namespace turbogr::run {
namespace {

using test::OwnedRankingBatch;

std::vector<std::string> names_of(const std::vector<std::pair<std::string, double>>& figures) {
  std::vector<std::string> names;
  for (const auto& figure : figures) names.push_back(figure.first);
  return names;
}

TEST(RankingFigures, AreMeansAndThoseOfEachTaskAndLeaveOutWhatDoesNotExist) {
  const train::RankingTrainOptions options = test::small_ranking_training();
  const Context ctx({.threads = 1});
  embedding::LocalRows<float> rows(test::tables_of(options), Device::kCpu);
  rows.initialise(ctx);
  model::RankingModel<float> model(ctx, options.model, options.memory);
  model.initialise(ctx, 1);
  RankingSetup setup;
  setup.layout.tasks = {{.name = "like"}, {.name = "stay", .number = "stay"}};
  setup.regression = {0, 1};
  const auto evaluate = [&] {
    eval::RankingEvaluator<float> evaluator(
        ctx, model, rows,
        {.features = options.features, .memory = options.memory, .regression = setup.regression});
    OwnedRankingBatch batch = test::ranking_share(0, 0, 1);
    const std::vector<std::int64_t> groups(batch.labels.size() / 2, 0);
    evaluator.add(ctx, batch.view(), test::view_of(groups));
    return ranking_figures(evaluator, setup);
  };
  const Evaluation mixed = evaluate();
  EXPECT_EQ(names_of(mixed.figures),
            (std::vector<std::string>{"auc", "gauc", "gauc_by_targets", "ne", "accuracy", "mse",
                                      "mae", "like.auc", "like.gauc", "like.gauc_by_targets",
                                      "like.ne", "like.accuracy", "stay.mse", "stay.mae"}));
  EXPECT_EQ(mixed.figures[0].second, mixed.figures[7].second) << "the mean of one";
  ASSERT_EQ(mixed.calibration.size(), 1u) << "a number has none";
  EXPECT_EQ(mixed.calibration[0].task, "like");
  EXPECT_EQ(mixed.calibration[0].bins.size(), static_cast<std::size_t>(eval::kCalibrationBins));
  std::vector<std::string> all = ranking_figure_names(setup), given = names_of(mixed.figures);
  std::sort(all.begin(), all.end());
  std::sort(given.begin(), given.end());
  EXPECT_EQ(all, given);
  EXPECT_EQ(score_of(mixed, "auc"), mixed.figures[0].second);
  EXPECT_EQ(score_of(mixed, "like.ne"), -mixed.figures[3].second) << "less is better";
  EXPECT_EQ(score_of(mixed, "hr@10"), std::nullopt);

  // A run that predicts numbers alone has targets, too.
  setup.layout.tasks = {{.name = "stay", .number = "stay"}, {.name = "pay", .number = "pay"}};
  setup.regression = {1, 1};
  const Evaluation numbers = evaluate();
  const auto targets = [](const Evaluation& evaluation) {
    const auto found = std::find_if(evaluation.counts.begin(), evaluation.counts.end(),
                                    [](const auto& count) { return count.first == "targets"; });
    return found == evaluation.counts.end() ? 0 : found->second;
  };
  EXPECT_GT(targets(mixed), 0);
  EXPECT_EQ(targets(numbers), targets(mixed));

  // Of one class alone there is nothing to order, and nothing to compare the entropy with.
  setup.layout.tasks = {{.name = "a"}, {.name = "b"}};
  setup.regression = {0, 0};
  eval::RankingEvaluator<float> evaluator(
      ctx, model, rows,
      {.features = options.features, .memory = options.memory, .regression = setup.regression});
  OwnedRankingBatch batch = test::ranking_share(0, 0, 1);
  std::fill(batch.labels.begin(), batch.labels.end(), 1.0f);
  const std::vector<std::int64_t> groups(batch.labels.size() / 2, 0);
  evaluator.add(ctx, batch.view(), test::view_of(groups));
  EXPECT_EQ(names_of(ranking_figures(evaluator, setup).figures),
            (std::vector<std::string>{"accuracy", "a.accuracy", "b.accuracy"}));
}

}  // namespace
}  // namespace turbogr::run
