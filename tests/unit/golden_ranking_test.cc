// The ranking model, its loss and its optimisers against an independent implementation in double
// (tests/fixtures/ranking): what is made on the way, the loss, and the gradient of every parameter
// and every table.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/support/golden_ranking_model.h"
#include "turbogr/data/samples/cross_hash.h"
#include "turbogr/eval/click_metrics.h"

namespace turbogr::model {
namespace {

using test::check_golden_model;
using test::check_golden_optimisers;
using test::Golden;
using test::kManyPrefixes;
using test::kManyTargets;
using test::Shape;

const Context& cpu() {
  static const Context ctx({.threads = 2});
  return ctx;
}

TEST(GoldenRanking, ManyTargetsMatchInDouble) {
  check_golden_model<double>(cpu(), kManyTargets, 1e-11);
  check_golden_model<double>(cpu(), kManyTargets, 1e-11, /*few=*/false);
}
TEST(GoldenRanking, ManyPrefixesMatchInDouble) {
  check_golden_model<double>(cpu(), kManyPrefixes, 1e-11);
  check_golden_model<double>(cpu(), kManyPrefixes, 1e-11, /*few=*/false);
}
TEST(GoldenRanking, ManyTargetsMatchInSingle) {
  check_golden_model<float>(cpu(), kManyTargets, 2e-5);
  check_golden_model<float>(cpu(), kManyTargets, 2e-5, /*few=*/false);
}
TEST(GoldenRanking, ManyPrefixesMatchInSingle) {
  check_golden_model<float>(cpu(), kManyPrefixes, 2e-5);
  check_golden_model<float>(cpu(), kManyPrefixes, 2e-5, /*few=*/false);
}

TEST(GoldenRanking, OptimisersMatchOfManyTargets) { check_golden_optimisers(cpu(), kManyTargets); }
TEST(GoldenRanking, OptimisersMatchOfManyPrefixes) {
  check_golden_optimisers(cpu(), kManyPrefixes);
}

TEST(GoldenRanking, HashesAndFiguresMatch) {
  for (const Shape& shape : {kManyTargets, kManyPrefixes}) {
    const Golden golden(shape);
    const std::vector<std::int64_t> hashes = golden.integers("xxh64");
    const auto hash = [](auto... keys) {
      return static_cast<std::int64_t>(
          data::cross_hash(std::array<std::int64_t, sizeof...(keys)>{keys...}));
    };
    EXPECT_EQ(hashes,
              (std::vector<std::int64_t>{hash(1, 2), hash(7, -1), hash(123456789, 42, 23)}));

    const Tensor scores = golden.tensor("metric.score");
    const std::vector<std::int64_t> labels = golden.integers("metric.label");
    const std::vector<std::int64_t> groups = golden.integers("metric.group");
    eval::ClickMetrics metrics;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      metrics.add({.probability = test::element(scores, static_cast<std::int64_t>(i)),
                   .positive = labels[i] > 0,
                   .group = groups[i]});
    }
    const eval::ClickFigures figures = metrics.figures();
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
