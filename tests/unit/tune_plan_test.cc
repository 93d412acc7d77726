#include "turbogr/run/tune_plan.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/messages.h"
#include "turbogr/run/config_keys.h"
#include "turbogr/run/tune.h"

namespace turbogr::run {
namespace {

Config base() { return parse_config("[train]\nepochs = 100\n", "base"); }

TEST(TunePlan, TheFirstTrialIsTheConfigAndTheOthersDiffer) {
  const std::vector<Config> trials = draw_trials(base(), 5000, 50, tuned_settings(base()), 1);
  ASSERT_EQ(trials.size(), 50u);
  EXPECT_EQ(trials[0], base());
  std::set<std::string> rates, widths, layers, negatives, dropouts;
  for (Config config : trials) {
    EXPECT_GE(config.optim.lr, base().optim.lr / 5.1);
    EXPECT_LE(config.optim.lr, base().optim.lr * 5.1);
    EXPECT_DOUBLE_EQ(config.embedding.lr, config.optim.lr);
    EXPECT_EQ(config.model.dq * config.model.heads, config.model.width);
    EXPECT_LT(config.negatives.count, 5000);
    rates.insert(setting_text(config, "lr"));
    widths.insert(setting_text(config, "width"));
    layers.insert(setting_text(config, "layers"));
    negatives.insert(setting_text(config, "negatives"));
    dropouts.insert(setting_text(config, "dropout"));
    EXPECT_EQ(test::message_of([&] { resolve_config(config); }), "");
  }
  EXPECT_GT(rates.size(), 20u);
  EXPECT_EQ(widths, (std::set<std::string>{"32", "64", "128"}));
  EXPECT_EQ(layers, (std::set<std::string>{"1", "2", "3", "4"}));
  EXPECT_EQ(negatives, (std::set<std::string>{"64", "128", "256", "512"}));
  EXPECT_EQ(dropouts.size(), 6u);
}

TEST(TunePlan, DrawsAreTheSameForTheSameSeedHoweverManyThereAre) {
  const std::vector<Config> few = draw_trials(base(), 5000, 5, tuned_settings(base()), 1);
  const std::vector<Config> many = draw_trials(base(), 5000, 20, tuned_settings(base()), 1);
  const std::vector<Config> others = draw_trials(base(), 5000, 5, tuned_settings(base()), 2);
  for (std::size_t t = 0; t < few.size(); ++t) EXPECT_EQ(few[t], many[t]) << t;
  EXPECT_FALSE(few[1] == others[1]);
}

TEST(TunePlan, RankingVariesTheRateOfItsTables) {
  const Config ranking = parse_config("task = \"ranking\"\n[train]\nepochs = 10\n", "base");
  std::set<std::string> rates;
  for (Config config : draw_trials(ranking, 5000, 40, tuned_settings(ranking), 1)) {
    EXPECT_EQ(config.negatives, ranking.negatives);
    EXPECT_EQ(config.model.hidden, config.model.width);
    EXPECT_EQ(config.model.head_hidden, config.model.width);
    rates.insert(setting_text(config, "tables"));
    EXPECT_EQ(test::message_of([&] { resolve_config(config); }), "");
  }
  EXPECT_GT(rates.size(), 20u);
  EXPECT_NE(test::message_of([&] {
              draw_trials(ranking, 5000, 2, {"negatives"}, 1);
            }).find("there are lr, dropout, width, layers, tables"),
            std::string::npos);
}

TEST(TunePlan, OnlyWhatIsNamedVaries) {
  for (const Config& config : draw_trials(base(), 5000, 20, {"dropout"}, 1)) {
    for (const std::string& difference : config_differences(base(), config, "")) {
      EXPECT_EQ(difference.rfind("model.dropout", 0), 0u) << difference;
    }
  }
  EXPECT_NE(test::message_of([] {
              draw_trials(base(), 5000, 2, {"heads"}, 1);
            }).find("no such setting; there are lr"),
            std::string::npos);
}

TEST(TunePlan, NegativesStayBelowTheNumberOfItems) {
  for (const Config& config : draw_trials(base(), 100, 30, {"negatives"}, 1)) {
    EXPECT_TRUE(config.negatives.count == 64 || config == base());
  }
}

TEST(TunePlan, HalvesByThirds) {
  EXPECT_EQ(plan_rungs(20, 100, 1), (std::vector<Rung>{{20, 11}, {7, 33}, {3, 100}}));
  EXPECT_EQ(plan_rungs(3, 100, 1), (std::vector<Rung>{{3, 100}}));
  EXPECT_EQ(plan_rungs(1, 1, 1), (std::vector<Rung>{{1, 1}}));
  // Every rung ends with an evaluation, and none is as long as the next.
  EXPECT_EQ(plan_rungs(20, 100, 10), (std::vector<Rung>{{20, 10}, {7, 30}, {3, 100}}));
  EXPECT_EQ(plan_rungs(20, 2, 1), (std::vector<Rung>{{20, 1}, {7, 2}}));
  EXPECT_EQ(plan_rungs(20, 1, 1), (std::vector<Rung>{{20, 1}}));
  EXPECT_EQ(plan_rungs(20, 5, 10), (std::vector<Rung>{{20, 5}}));
}

TEST(TunePage, HoldsTheTableAndOneCurveATrialAndNothingFromElsewhere) {
  std::vector<Trial> trials(3);
  for (std::size_t t = 0; t < trials.size(); ++t) {
    trials[t].number = static_cast<std::int64_t>(t) + 1;
    trials[t].config = base();
  }
  trials[0].curve = {{1, 0.1}, {2, 0.3}};
  trials[1].curve = {{1, 0.2}};
  trials[2].fault = "out of <memory>";
  const std::string page = trials_page(trials, "ndcg@10", "a <b> & c");
  EXPECT_NE(page.find("a &lt;b&gt; &amp; c"), std::string::npos);
  EXPECT_NE(page.find("out of &lt;memory&gt;"), std::string::npos);
  EXPECT_NE(page.find("trial 1: 0.3000"), std::string::npos);
  EXPECT_EQ(page.find("http"), std::string::npos);
  EXPECT_EQ(page.find("nan"), std::string::npos);
  std::size_t curves = 0;
  for (std::size_t at = 0; (at = page.find("<polyline", at)) != std::string::npos; ++at) ++curves;
  EXPECT_EQ(curves, 2u);
  const std::string table = trials_table(trials, "ndcg@10");
  EXPECT_NE(table.find("0.3000"), std::string::npos) << table;
  EXPECT_NE(table.find("failed"), std::string::npos) << table;
}

}  // namespace
}  // namespace turbogr::run
