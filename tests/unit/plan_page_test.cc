// The page of a plan: what its script will see, and the curves on it.
#include "turbogr/plan/plan_page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/paths.h"
#include "turbogr/plan/scaling.h"
#include "turbogr/run/config.h"

namespace turbogr::plan {
namespace {

nlohmann::json data_of(const std::string& page) {
  const std::string begin = "id=\"data\">";
  const std::size_t from = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from));
}

run::Config small_config() {
  return run::load_config(test::source_dir() + "/configs/demo.toml", {{"train.device", "cuda"},
                                                                      {"train.dtype", "bf16"},
                                                                      {"train.tokens", "1024"},
                                                                      {"data.max_length", "128"},
                                                                      {"negatives.set", "batch"}});
}

TEST(PlanPage, CutsTheLastStepOutOfATrace) {
  const std::vector<TracedStage> trace = {
      {0, 0, "update dense weights", 0.9, 1.0}, {0, 0, "forward and backward", 1.0, 1.8},
      {1, 0, "forward and backward", 1.0, 1.7}, {0, 1, "fetch rows", 0.8, 1.4},
      {0, 0, "update dense weights", 1.8, 2.0}, {0, 1, "exchange ids", 1.9, 2.5}};
  const std::vector<TracedStage> step = last_step(trace, 0);
  ASSERT_EQ(step.size(), 4u);
  EXPECT_DOUBLE_EQ(step[0].begin, 0);
  EXPECT_DOUBLE_EQ(step[0].end, 0.8);
  EXPECT_STREQ(step[1].name, "fetch rows");  // began in the step before
  EXPECT_DOUBLE_EQ(step[1].begin, 0);
  EXPECT_DOUBLE_EQ(step[3].end, 1.0);  // goes on in the next
  EXPECT_TRUE(last_step(trace, 1).empty());
}

TEST(PlanPage, HoldsItsFiguresWhateverTheirNames) {
  PlanFigures figures;
  figures.name = "</script><b>";
  figures.curves = {
      {"exact_prefetch", {{.ranks = 1, .linearity = 1}, {.ranks = 8, .linearity = .9}}},
      {"semi_async", {}}};
  figures.step = {{0, 0, "forward and backward", 0, 0.008}};
  figures.step_seconds = 0.01;
  Choice fits, not_so;
  fits.fits = true;
  fits.simulation.step_seconds = 0.01;
  fits.memory = {.device = 3e9, .activations = 1e9, .table = 1e9};
  figures.choices = {fits, not_so};
  figures.memory_gib = 80;
  const nlohmann::json data = data_of(plan_page(figures));
  EXPECT_EQ(data["name"], "</script><b>");
  ASSERT_EQ(data["charts"].size(), 2u);
  EXPECT_EQ(data["charts"][0]["lines"].size(), 1u);  // the other has no point
  EXPECT_EQ(data["charts"][0]["last"], 8);
  EXPECT_EQ(data["step"]["stages"][0]["kind"], "compute");
  EXPECT_EQ(data["memory"]["bars"].size(), 2u);
  EXPECT_EQ(data["choices"][1][3], "does not fit");
}

TEST(PlanScaling, OneDeviceIsLinearAndMoreAreLess) {
  const Context ctx;
  const Settings settings = {8, "exact_prefetch", "bf16", "f32", false};
  const std::vector<ScalingCurve> curves =
      scaling_curves(ctx, small_config(), {.nodes = 1, .gpus = 8}, "movielens", settings,
                     {.ranks = {1, 4, 32}, .tokens = 512});
  ASSERT_EQ(curves.size(), 2u);
  for (const ScalingCurve& curve : curves) {
    ASSERT_EQ(curve.points.size(), 3u);
    EXPECT_NEAR(curve.points[0].linearity, 1, 1e-9);
    EXPECT_LT(curve.points[1].linearity, 1);
    EXPECT_LT(curve.points[2].linearity, curve.points[1].linearity);
  }
}

TEST(PlanScaling, RefusesHalfAMachine) {
  const Context ctx;
  const Settings settings = {8, "exact_prefetch", "bf16", "f32", false};
  EXPECT_TRUE(test::has(test::message_of([&] {
                          scaling_curves(ctx, small_config(), {.nodes = 1, .gpus = 8}, "movielens",
                                         settings, {.ranks = {12}, .tokens = 512});
                        }),
                        "a multiple of the 8 devices"));
}

}  // namespace
}  // namespace turbogr::plan
