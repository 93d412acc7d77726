#include "turbogr/run/store_defaults.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "tests/support/messages.h"
#include "tests/support/paths.h"
#include "tests/support/stores.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/run/config_keys.h"

namespace turbogr {
namespace {

run::Config chosen_for(const run::StoreSize& size, const run::NamedKeys& named = {}) {
  run::Config config;
  run::choose_for_store(config, named, size);
  run::resolve_config(config);
  return config;
}

TEST(StoreDefaults, SmallStoresGetManySmallStepsAndPatience) {
  const run::Config config = chosen_for(
      {.name = "films", .users = 610, .items = 9724, .events = 100'836, .recent_events = 55'000});
  EXPECT_EQ(config.data.history, "windows");
  EXPECT_EQ(config.model.dropout, 0.4);
  EXPECT_EQ(config.optim.lr, 2e-3);
  EXPECT_EQ(config.embedding.lr, 2e-3);
  EXPECT_EQ(config.negatives.count, 128);
  EXPECT_EQ(config.run.dir, "runs/films");
  EXPECT_EQ(config.train.batch, 16);
  EXPECT_EQ(config.train.epochs, 200);
  EXPECT_EQ(config.train.patience, 5);
  EXPECT_EQ(config.eval.every, 2);  // 38 steps an epoch
  EXPECT_EQ(config.eval.max_users, 0);
  EXPECT_EQ(config.checkpoint.keep_best, 1);
  EXPECT_EQ(config.model.bias, "both");
}

TEST(StoreDefaults, FeaturesOfItemsAreTakenWhereTheRunIsLeftOpen) {
  const run::StoreSize size = {.users = 610, .items = 99, .events = 1'000, .item_features = true};
  EXPECT_EQ(chosen_for(size).model.features, "store");
  EXPECT_EQ(chosen_for(size, {"model.features"}).model.features, "named");
  EXPECT_EQ(chosen_for(size, {"train.epochs"}).model.features, "named");  // a recipe
  run::Config named, half;
  named.features.push_back({.name = "genres", .from = "item.genres"});
  half.negatives.dtype = "f16";
  for (run::Config* config : {&named, &half}) {
    run::choose_for_store(*config, {}, size);
    EXPECT_EQ(config->model.features, "named");
  }
  EXPECT_EQ(chosen_for({.users = 610, .items = 99, .events = 1'000}).model.features, "named");
}

TEST(StoreDefaults, LargerStoresGetLargerModelsAndFewerEpochs) {
  std::int64_t width = 0, layers = 0, epochs = 1000;
  for (const std::int64_t events : {1'000'000, 10'000'000, 300'000'000}) {
    const run::Config config = chosen_for({.name = "s",
                                           .users = events / 100,
                                           .items = events / 50,
                                           .events = events,
                                           .recent_events = events});
    EXPECT_GT(config.model.width, width);
    EXPECT_GT(config.model.layers, layers);
    EXPECT_LT(config.train.epochs, epochs);
    EXPECT_EQ(config.model.width % config.model.heads, 0);
    EXPECT_GE(config.train.epochs, 3);
    EXPECT_EQ(config.data.history, "last");
    EXPECT_EQ(config.train.batch, 128);
    EXPECT_EQ(config.eval.every, 1);
    width = config.model.width;
    layers = config.model.layers;
    epochs = config.train.epochs;
  }
}

TEST(StoreDefaults, AStoreWithoutTimesGetsABiasThatNeedsNone) {
  EXPECT_EQ(chosen_for({.users = 10, .items = 10, .events = 100, .times = false}).model.bias,
            "position");
  for (const bool times : {true, false}) {
    run::Config ranking;
    ranking.task = "ranking";
    ranking.model.kind = "fuxi";
    run::choose_for_store(ranking, {}, {.users = 10, .items = 9, .events = 100, .times = times});
    EXPECT_EQ(ranking.model.bias, times ? "both" : "position");
  }
}

TEST(StoreDefaults, ShortHistoriesKeepTargetsForTraining) {
  for (const auto& [events, targets] : {std::pair{5, 1}, {12, 4}, {23, 7}, {24, 8}, {500, 8}}) {
    run::Config ranking;
    ranking.task = "ranking";
    run::choose_for_store(ranking, {}, {.users = 10, .items = 9, .events = 10 * events});
    EXPECT_EQ(ranking.samples.targets, targets) << events;
  }
}

TEST(StoreDefaults, NumbersAreJudgedByTheirErrors) {
  const auto metric = [](const std::vector<run::TaskConfig>& tasks) {
    run::Config ranking;
    ranking.task = "ranking";
    ranking.eval.metric = "auc";
    ranking.tasks = tasks;
    run::choose_for_store(ranking, {}, {.users = 10, .items = 9, .events = 1000});
    return ranking.eval.metric;
  };
  const run::TaskConfig click = {.name = "click"}, watch = {.name = "watch", .number = "watch"};
  EXPECT_EQ(metric({}), "auc");
  EXPECT_EQ(metric({click, watch}), "auc");
  EXPECT_EQ(metric({watch}), "mse");
}

TEST(StoreDefaults, TheEmptiestStoreHasDefaultsToo) {
  const run::Config config = chosen_for({});
  EXPECT_GE(config.train.batch, 1);
  EXPECT_GE(config.train.epochs, 1);
}

TEST(StoreDefaults, NegativesAreAtMostHalfOfTheItemsAndMoreForLargeCatalogues) {
  for (const auto& [items, count] :
       {std::pair{0, 1}, {2, 1}, {100, 50}, {10'000, 128}, {500'000, 256}, {2'000'000, 512}}) {
    EXPECT_EQ(chosen_for({.users = 10, .items = items, .events = 99}).negatives.count, count);
  }
}

TEST(StoreDefaults, AnotherOptimiserOfTheItemTableKeepsItsRate) {
  run::Config config;
  config.embedding.optimiser = "adagrad";
  run::choose_for_store(config, {"embedding.optimiser"}, {.users = 10, .items = 9, .events = 100});
  EXPECT_EQ(config.embedding.lr, 1e-3);
  EXPECT_EQ(config.optim.lr, 2e-3);
}

// Each key that a rule decides, named with a value that no rule chooses: nothing may change.
TEST(StoreDefaults, ANamedKeyIsNeverChanged) {
  run::Config config;
  config.model.layers = 3;
  config.model.width = 48;
  config.train.epochs = 7;
  config.train.patience = 11;
  config.eval.every = 13;
  run::NamedKeys named;
  for (const run::ConfigKey& key : run::config_keys()) named.insert(std::string(key.name));
  run::Config after = config;
  EXPECT_TRUE(
      run::choose_for_store(after, named, {.users = 610, .items = 99, .events = 1'000}).empty());
  EXPECT_EQ(after, config);
  for (const run::ConfigKey& key : run::config_keys()) {
    if (run::how_chosen(key.name).empty()) continue;
    run::NamedKeys one = {std::string(key.name)};
    run::Config other = config;
    run::choose_for_store(other, one, {.users = 50'000, .items = 99, .events = 10'000'000});
    EXPECT_EQ(key.get(other), key.get(config)) << key.name;
  }
}

TEST(StoreDefaults, NamingALengthLeavesEvaluationAndPatienceAlone) {
  const run::StoreSize size = {.users = 500'000, .items = 9, .events = 4'000'000};
  EXPECT_EQ(chosen_for(size).eval.max_users, 20'000);
  run::Config by_steps;
  by_steps.train.steps = 500;
  run::choose_for_store(by_steps, {"train.steps"}, size);
  EXPECT_EQ(by_steps.train.epochs, 0);  // else the smaller of the two would end the run
  for (const run::Config& config : {by_steps, chosen_for(size, {"train.epochs"})}) {
    EXPECT_EQ(config.train.patience, 0);
    EXPECT_EQ(config.eval.every, 0);
    EXPECT_EQ(config.eval.max_users, 0);
    EXPECT_EQ(config.checkpoint.keep_best, 0);
    EXPECT_EQ(config.data.history, "last");
  }
  run::Config by_test;
  by_test.data.holdout = "test";
  run::choose_for_store(by_test, {"data.holdout"}, {.users = 10, .items = 9, .events = 100});
  EXPECT_EQ(by_test.train.patience, 0);
  run::resolve_config(by_test);
  run::Config without_evaluations;
  run::choose_for_store(without_evaluations, {"eval.every"},
                        {.users = 9, .items = 9, .events = 99});
  EXPECT_EQ(without_evaluations.train.patience, 0);
  run::resolve_config(without_evaluations);
}

TEST(StoreDefaults, NamedPatienceGetsItsEvaluationsAndTheBestCheckpoint) {
  for (const run::NamedKeys& named :
       {run::NamedKeys{"train.patience"}, run::NamedKeys{"train.patience", "train.epochs"}}) {
    run::Config config;
    config.train.patience = 9;
    run::choose_for_store(config, named, {.users = 50'000, .items = 9, .events = 1'000'000});
    EXPECT_EQ(config.train.patience, 9);
    EXPECT_EQ(config.eval.every, 1);
    EXPECT_EQ(config.checkpoint.keep_best, 1);
    run::resolve_config(config);
  }
  const run::Config never =
      chosen_for({.users = 99, .items = 9, .events = 990}, {"train.patience"});
  EXPECT_EQ(never.train.patience, 0);
  EXPECT_GT(never.eval.every, 0);
}

TEST(StoreDefaults, HeadsDivideAnyWidth) {
  for (std::int64_t width = 1; width < 200; ++width) {
    run::Config config;
    config.model.width = width;
    run::choose_for_store(config, {"model.width"}, {.users = 10, .items = 9, .events = 100});
    EXPECT_EQ(width % config.model.heads, 0) << width;
  }
}

class LoadedForAStore : public ::testing::Test {
 protected:
  test::TemporaryFolder folder_;
  std::string store_ = (folder_ / "mine").string();

  void SetUp() override { test::write_numbered_store(store_, {5, 7, 9}); }
};

TEST_F(LoadedForAStore, AConfigNeedsNoFile) {
  const run::LoadedConfig loaded = run::load_config_for_store("", {{"data.store", store_ + "/"}});
  EXPECT_EQ(loaded.config.run.dir, "runs/mine");
  EXPECT_EQ(loaded.config.train.patience, 5);
  EXPECT_TRUE(loaded.unread.empty()) << loaded.unread;
  const auto& chosen = loaded.chosen;
  EXPECT_NE(std::find(chosen.begin(), chosen.end(), "train.patience = 5"), chosen.end());
  EXPECT_EQ(loaded.config.model.dq * loaded.config.model.heads, loaded.config.model.width);
  EXPECT_NE(
      test::message_of([] { run::load_config(""); }).find("neither a config file nor a store"),
      std::string::npos);
}

TEST_F(LoadedForAStore, TheResolvedConfigHasTheChosenNumbers) {
  const run::LoadedConfig loaded = run::load_config_for_store("", {{"data.store", store_}});
  EXPECT_EQ(run::parse_config(run::config_text(loaded.config), "printed"), loaded.config);
}

TEST_F(LoadedForAStore, AStoreThatIsNotThereLeavesTheValuesAndSaysWhy) {
  const run::LoadedConfig loaded =
      run::load_config_for_store("", {{"data.store", store_ + "-not"}});
  EXPECT_NE(loaded.unread.find("mine-not"), std::string::npos) << loaded.unread;
  EXPECT_TRUE(loaded.chosen.empty());
  EXPECT_EQ(loaded.config.train.epochs, 1);
}

// The configs of the tree name what the store would decide: they train as they did.
TEST_F(LoadedForAStore, NamedConfigsAreAsTheyAreWithoutAStore) {
  for (const auto& entry : std::filesystem::directory_iterator(test::source_dir() + "/configs")) {
    if (entry.path().stem() == "own-data") continue;
    const run::LoadedConfig loaded =
        run::load_config_for_store(entry.path().string(), {{"data.store", store_}});
    EXPECT_TRUE(loaded.chosen.empty()) << entry.path() << ": " << loaded.chosen.front();
  }
}

// The file explains; what it does is what the program does without it.
TEST_F(LoadedForAStore, TheConfigForOnesOwnDataIsTheDefaultsExplained) {
  const std::string path = test::source_dir() + "/configs/own-data.toml";
  const std::vector<run::Override> overrides = {{"data.store", store_}, {"run.dir", "runs/x"}};
  EXPECT_EQ(run::load_config(path, overrides), run::load_config("", overrides));
  // Every key that the store decides has its line, as a comment or not.
  std::set<std::string> shown;
  std::ifstream file(path);
  std::string section;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("[")) section = line.substr(1, line.find(']') - 1) + ".";
    if (line.starts_with("# ")) line = line.substr(2);
    const std::size_t equals = line.find(" = ");
    if (equals != std::string::npos) shown.insert(section + line.substr(0, equals));
  }
  for (const run::ConfigKey& key : run::config_keys()) {
    if (run::how_chosen(key.name).empty()) continue;
    EXPECT_TRUE(shown.contains(key.name)) << key.name;
  }
}

TEST(ConfigHelp, SaysHowADefaultIsChosen) {
  const std::string help = "\n" + run::config_help();
  for (const run::ConfigKey& key : run::config_keys()) {
    const std::size_t line = help.find("\n" + std::string(key.name) + " ") + 1;
    ASSERT_NE(line, 0u) << key.name;
    const std::string text = help.substr(line, help.find('\n', line) - line);
    EXPECT_EQ(text.find("by the store") != std::string::npos, !run::how_chosen(key.name).empty())
        << text;
    EXPECT_NE(text.find(run::how_chosen(key.name)), std::string::npos);
    EXPECT_NE(text.find(run::how_chosen(key.name, "ranking")), std::string::npos) << text;
  }
  const auto says = [&](const std::string& key, const std::string& ranking) {
    const std::size_t line = help.find("\n" + key + " ");
    const std::string text = help.substr(line, help.find('\n', line + 1) - line);
    const std::size_t at = text.find("; not named, ranking: ");
    EXPECT_EQ(at == std::string::npos ? "" : text.substr(at + 22), ranking) << text;
  };
  says("train.patience", "2, where neither train.epochs nor train.steps is named");
  says("model.dropout", "0.1");  // of the task, whatever the store
  says("model.layers", "2");     // a rule of retrieval alone
  says("run.dir", "");           // the same
  says("negatives.count", "");   // refused
  EXPECT_FALSE(run::how_chosen("train.epochs").empty());
}

}  // namespace
}  // namespace turbogr
