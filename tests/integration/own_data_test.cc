// What a new user does: a store and no config, early stopping, the best checkpoint, popularity.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/run/config.h"

namespace turbogr {
namespace {

namespace fs = std::filesystem;
using test::has;
using test::Outcome;
using test::run_program;

std::string contents_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class OwnData : public ::testing::Test {
 protected:
  test::TemporaryFolder folder_;
  std::string root_ = folder_.path().string();

  void SetUp() override {
    const Outcome made = run_program(
        "data synth --like kuairand27k --users 60 --items 80 --mean-length 30 "
        "--max-length 60 --seed 3 --threads 1 --out " +
        root_ + "/mine");
    ASSERT_EQ(made.status, 0) << made.output;
  }

  // In the test's folder, so that runs/ is there.
  Outcome program(const std::string& arguments) {
    return run_program(arguments, "cd " + root_ + " &&");
  }

  // A small run whose figures never change: with such a rate nothing is learnt.
  Outcome still(const std::string& run, const std::string& more) {
    return program(
        "train --data.store=mine --model.width=16 --train.threads=1 --train.peak_tflops=1 "
        "--log.progress=none --optim.lr=1e-12 --embedding.lr=1e-12 --train.epochs=50 "
        "--eval.every=1 --checkpoint.every_epochs=1 --checkpoint.keep_last=99 --run.dir=" +
        run + " " + more);
  }
};

TEST_F(OwnData, TrainsEvaluatesAndRecommendsWithoutAConfig) {
  const Outcome trained = program(
      "train --data.store=mine --train.threads=1 --train.peak_tflops=1 --log.progress=none");
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_TRUE(has(trained, "chosen from the store's size: run.dir = \"runs/mine\", model.layers"))
      << trained.output;
  EXPECT_TRUE(has(trained, "test by popularity alone:")) << trained.output;
  // The run folder holds the numbers, not the rules they came from.
  const run::Config config =
      run::parse_config(contents_of(root_ + "/runs/mine/config.toml"), "config.toml");
  EXPECT_EQ(config.train.patience, 5);
  EXPECT_EQ(config.train.batch, 16);
  const Outcome evaluated = program("eval --checkpoint runs/mine");
  EXPECT_EQ(evaluated.status, 0) << evaluated.output;
  EXPECT_TRUE(has(evaluated, "popularity")) << evaluated.output;
  EXPECT_EQ(program("recommend --checkpoint runs/mine --user 1").status, 0);
  const Outcome again = program("train --data.store=mine");
  EXPECT_EQ(again.status, 1);
  EXPECT_TRUE(has(again, "'runs/mine' is not empty; go on with")) << again.output;
}

// Users walk around a circle of items and jump now and then: all items are as popular, and the next
// one follows from the last.
TEST_F(OwnData, WithoutAConfigAModelIsFarBetterThanPopularity) {
  std::mt19937 random(1);
  std::string log = "user,item,timestamp\n";
  for (int user = 0; user < 100; ++user) {
    std::uint_fast32_t item = random() % 60;
    for (int event = 0; event < 20; ++event) {
      log += fmt::format("{},{},{}\n", user, item, 1000 * user + event);
      item = random() % 10 == 0 ? random() % 60 : (item + 1) % 60;
    }
  }
  test::write_file(root_ + "/walks.csv", log);
  ASSERT_EQ(program("data prepare walks.csv --out walks").status, 0);
  const Outcome trained = program(
      "train --data.store=walks --train.threads=1 --train.peak_tflops=1 --log.progress=none");
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_FALSE(has(trained, "worse than popularity")) << trained.output;
  ASSERT_EQ(program("eval --checkpoint runs/walks --split test --json figures.json").status, 0);
  std::map<std::string, double> ndcg;
  for (const auto& row : nlohmann::json::parse(contents_of(root_ + "/figures.json"))) {
    ndcg[row.at("ranking").get<std::string>()] = row.at("ndcg@10").get<double>();
  }
  ASSERT_EQ(ndcg.size(), 2u);
  EXPECT_GT(ndcg["model"], 0.5);
  EXPECT_LT(ndcg["popularity"], 0.2);
}

TEST_F(OwnData, SaysWhenAModelIsWorseThanPopularity) {
  const Outcome trained = still("poor", "--train.steps=1");
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_TRUE(has(trained, "the model ranks worse than popularity on the test split (ndcg@10 "))
      << trained.output;
  const Outcome evaluated = program("eval --checkpoint poor --split test");
  EXPECT_TRUE(has(evaluated, "worse than popularity on the test split")) << evaluated.output;
  const Outcome alone = program("eval --checkpoint poor --split test --no-popularity");
  EXPECT_FALSE(has(alone, "popularity")) << alone.output;
}

TEST_F(OwnData, PatienceEndsARunAndIsCountedThroughAResume) {
  const Outcome whole = still("whole", "--train.patience=3");
  ASSERT_EQ(whole.status, 0) << whole.output;
  EXPECT_TRUE(has(whole, "stopping early: 3 evaluations in a row were no better than ndcg@10"))
      << whole.output;
  EXPECT_TRUE(has(whole, "validation after 4.00 epochs")) << whole.output;
  EXPECT_FALSE(has(whole, "validation after 5.00 epochs")) << whole.output;
  // The figure that ended the run is not computed and logged once more.
  const std::string metrics = contents_of(root_ + "/whole/metrics.jsonl");
  std::size_t evaluations = 0;
  for (std::size_t at = 0; (at = metrics.find("\"validation\"", at)) != std::string::npos; ++at) {
    ++evaluations;
  }
  EXPECT_EQ(evaluations, 4u) << metrics;
  // As a kill during the third epoch leaves it.
  fs::copy(root_ + "/whole", root_ + "/killed", fs::copy_options::recursive);
  const std::string checkpoints = root_ + "/killed/checkpoints";
  const std::string last = contents_of(checkpoints + "/latest");
  const std::int64_t steps = std::stoll(last.substr(last.find('-') + 1)) / 4;
  for (const std::int64_t epoch : {3, 4}) {
    EXPECT_EQ(fs::remove_all(fmt::format("{}/step-{:09}", checkpoints, epoch * steps)) > 0, true);
  }
  test::write_file(checkpoints + "/latest", fmt::format("step-{:09}\n", 2 * steps));
  const Outcome resumed = still("killed", "--train.patience=3 --run.resume=true");
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_TRUE(has(resumed, "stopping early: 3 evaluations")) << resumed.output;
  EXPECT_EQ(contents_of(checkpoints + "/latest"), last);
  // Nothing is left, until there is more patience.
  const Outcome ended = still("killed", "--train.patience=3 --run.resume=true");
  EXPECT_TRUE(has(ended, "nothing left to train")) << ended.output;
  EXPECT_TRUE(has(ended, "raise train.patience to go on")) << ended.output;
  const Outcome further = still("killed", "--train.patience=4 --run.resume=true");
  EXPECT_TRUE(has(further, "stopping early: 4 evaluations")) << further.output;
}

TEST_F(OwnData, PatienceWithoutWhatItGoesByIsRefused) {
  for (const auto& [more, part] :
       {std::pair{"--train.patience=3 --eval.every=0", "counts evaluations"},
        {"--train.patience=3 --data.holdout=test", "goes by the validation split"}}) {
    const Outcome refused = still("refused", more);
    EXPECT_EQ(refused.status, 1) << more;
    EXPECT_TRUE(has(refused, part)) << refused.output;
  }
}

TEST_F(OwnData, ARunFolderStandsForItsBestCheckpoint) {
  ASSERT_EQ(still("run", "--train.epochs=3 --checkpoint.keep_best=1").status, 0);
  const std::string checkpoints = root_ + "/run/checkpoints";
  const std::string last = contents_of(checkpoints + "/latest");
  // Equal figures: the first is the best.
  const std::string best = contents_of(checkpoints + "/best");
  ASSERT_NE(best, last);
  const auto step = [&](const std::string& name) {
    return fmt::format("(step {})", std::stoll(name.substr(name.find('-') + 1)));
  };
  EXPECT_TRUE(has(program("eval --checkpoint run"), step(best)));
  EXPECT_TRUE(has(program("eval --checkpoint run/checkpoints"), step(best)));
  EXPECT_TRUE(has(program("eval --checkpoint run/checkpoints/latest"), step(last)));
  // A new run goes on from the newest weights, as before.
  const Outcome started = still("next", "--train.steps=1 --run.start_from=run");
  EXPECT_TRUE(has(started, last.substr(0, last.size() - 1))) << started.output;
  // Damaged or gone: the newest, in words where there is something to say.
  std::string name = best;
  name.pop_back();
  test::write_file(checkpoints + "/" + name + "/state.json", "{}");
  const Outcome damaged = program("eval --checkpoint run");
  EXPECT_EQ(damaged.status, 0) << damaged.output;
  EXPECT_TRUE(has(damaged, "taking the newest one instead of the best")) << damaged.output;
  EXPECT_TRUE(has(damaged, step(last))) << damaged.output;
  fs::remove_all(checkpoints + "/" + name);
  EXPECT_TRUE(has(program("eval --checkpoint run"), step(last)));
}

TEST_F(OwnData, TheEndOfARunShowsTheBestCheckpointsFigures) {
  const Outcome trained = still("run", "--train.epochs=3 --checkpoint.keep_best=1");
  const std::string best = contents_of(root_ + "/run/checkpoints/best");
  const std::size_t line =
      trained.output.find("test of the best checkpoint, " + best.substr(0, best.size() - 1) + ":");
  ASSERT_NE(line, std::string::npos) << trained.output;
  const std::size_t figures = trained.output.find("  hr@10", line);
  const std::string shown =
      trained.output.substr(figures, trained.output.find('\n', line) - figures);
  const Outcome evaluated = program("eval --checkpoint run --split test --no-popularity");
  EXPECT_TRUE(has(evaluated, shown)) << shown << evaluated.output;
}

// A run could not read its own config again.
TEST_F(OwnData, NamesThatAreNotUtf8AreRefused) {
  const Outcome folder = still("'runs\xff'", "--train.epochs=1");
  EXPECT_EQ(folder.status, 1) << folder.output;
  EXPECT_TRUE(has(folder, "runs\\xff: the value is not UTF-8 text")) << folder.output;
  const std::string latin = root_ + "/lat\xe9in";
  fs::create_directory(latin);
  fs::rename(root_ + "/mine", latin + "/mine");
  const Outcome above =
      run_program("train --data.store=mine --train.steps=1 --run.dir=run", "cd " + latin + " &&");
  EXPECT_EQ(above.status, 1) << above.output;
  EXPECT_TRUE(has(above, "lat\\xe9in/mine' is not UTF-8 text")) << above.output;
  EXPECT_FALSE(fs::exists(latin + "/run"));
}

// The command is written down, whatever its bytes.
TEST_F(OwnData, AConfigFileMayHaveAnyName) {
  const std::string config = root_ + "/\xff.toml";
  test::write_file(config, "[data]\nstore = \"mine\"\n[train]\nsteps = 1\n[run]\ndir = \"run\"\n");
  const Outcome trained = program("train '" + config + "'");
  EXPECT_EQ(trained.status, 0) << trained.output;
  EXPECT_EQ(program("eval --checkpoint run").status, 0);
}

TEST_F(OwnData, ConfigShowsWhatIsChosenForAStore) {
  const Outcome shown = program("config --data.store=mine");
  ASSERT_EQ(shown.status, 0) << shown.output;
  EXPECT_EQ(run::parse_config(shown.output, "shown").train.batch, 16);
  const Outcome unread = program("config --data.store=other");
  EXPECT_EQ(unread.status, 0);
  EXPECT_TRUE(has(unread, "shown as they are without one")) << unread.output;
  EXPECT_TRUE(has(program("config --keys"), "by the store"));
}

}  // namespace
}  // namespace turbogr
