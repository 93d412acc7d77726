// `turbogr tune` as a user runs it: the table, the files, going on after a kill.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/run/config.h"

namespace turbogr {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;
using test::run_program;

std::string contents_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Tune : public ::testing::Test {
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

  Outcome tune(const std::string& more, int trials = 4, const std::string& out = "search") {
    return run_program(
        "tune --data.store=mine --train.epochs=3 --eval.every=1 --model.width=16 "
        "--negatives.count=8 --train.threads=1 --train.peak_tflops=1 " +
            fmt::format("--trials {} --out {} {}", trials, out, more),
        "cd " + root_ + " &&");
  }

  static std::string table_of(const Outcome& outcome) {
    const std::size_t begin = outcome.output.find("trial         lr");
    return begin == std::string::npos
               ? outcome.output
               : outcome.output.substr(begin, outcome.output.find("best:") - begin);
  }
};

TEST_F(Tune, FindsTheBestAndGoesOnAfterAKill) {
  const Outcome whole = tune("");
  ASSERT_EQ(whole.status, 0) << whole.output;
  const std::string table = table_of(whole);
  EXPECT_NE(table.find("ndcg@10"), std::string::npos) << whole.output;
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 6) << table;  // head, 4, an empty one
  EXPECT_NE(contents_of(root_ + "/search/tune.html").find("<svg"), std::string::npos);
  // Four begin, two go to the end; the others keep their figures alone.
  int checkpoints = 0;
  for (int trial = 1; trial <= 4; ++trial) {
    const std::string run = fmt::format("{}/search/trial-{:02}", root_, trial);
    EXPECT_TRUE(fs::exists(run + "/metrics.jsonl")) << trial;
    checkpoints += fs::exists(run + "/checkpoints") ? 1 : 0;
  }
  EXPECT_EQ(checkpoints, 2);
  // The best is a config to train, and a run to use.
  const run::Config best = run::load_config(root_ + "/search/best.toml");
  EXPECT_EQ(best.run.dir, "runs/mine");
  EXPECT_EQ(best.checkpoint.keep_best, 0);  // as the config had it
  const std::size_t eval = whole.output.find("turbogr eval --checkpoint ");
  ASSERT_NE(eval, std::string::npos) << whole.output;
  const std::size_t begin = eval + std::string("turbogr ").size();
  const Outcome used = run_program(
      whole.output.substr(begin, whole.output.find('`', begin) - begin), "cd " + root_ + " &&");
  EXPECT_EQ(used.status, 0) << used.output;

  // Nothing is left to do: the same table.
  EXPECT_EQ(table_of(tune("")), table);
  // As kills leave it: one trial without a checkpoint, one gone, one with half of its figures.
  for (const char* trial : {"trial-01/checkpoints", "trial-02", "trial-03/checkpoints"}) {
    fs::remove_all(root_ + "/search/" + trial);
  }
  const std::string metrics = root_ + "/search/trial-03/metrics.jsonl";
  const std::string lines = contents_of(metrics);
  test::write_file(metrics, lines.substr(0, lines.find("validation")));
  const Outcome resumed = tune("");
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_NE(resumed.output.find("going on with the search"), std::string::npos) << resumed.output;
  EXPECT_EQ(table_of(resumed), table);
}

TEST_F(Tune, RefusesAFolderOfSomethingElse) {
  ASSERT_EQ(tune("--vary lr --train.epochs=1", 1).status, 0);
  const auto refused = [](const Outcome& outcome, const std::string& part) {
    EXPECT_EQ(outcome.status, 1) << part;
    EXPECT_NE(outcome.output.find(part), std::string::npos) << outcome.output;
  };
  refused(tune("--vary lr --train.epochs=2", 1), "another config (train.epochs is 2, was 1)");
  refused(tune("--vary lr --train.epochs=1", 2), "with other options");
  refused(tune("--vary size"), "no such setting; there are lr, dropout");
  EXPECT_EQ(tune("", 0).status, 2);
  refused(tune("", 1, "mine"), "holds no search");
  refused(tune("", 1, "'s\xff'"), "is not UTF-8 text");
  refused(tune("--data.holdout=test", 1, "other"), "data.holdout = \"validation_test\"");
  refused(tune("--train.epochs=0 --train.steps=5", 1, "other"), "a share of train.epochs");
  refused(tune("--run.start_from=x", 1, "other"), "leave them out");
  EXPECT_FALSE(fs::exists(root_ + "/other"));
  const std::string file = root_ + "/search/tune.json";
  const std::string plan = contents_of(file);
  const auto with = [&](const std::string& key, const json& value) {
    json forged = json::parse(plan);
    forged[key] = value;
    return forged.dump();
  };
  for (const std::string& forged :
       {std::string("{"), std::string("[]"), with("version", "1"), with("version", nullptr),
        with("version", {1}), with("version", 2), with("config", 7),
        std::string("{\"version\": 1}"), std::string(1'000'000, '[')}) {
    test::write_file(file, forged);
    refused(tune("--vary lr --train.epochs=1", 1), "is not the plan of a search");
  }
  for (const auto& [key, value] :
       {std::pair<std::string, json>{"seed", "1"}, {"vary", json::object()}, {"trials", 1e300}}) {
    test::write_file(file, with(key, value));
    refused(tune("--vary lr --train.epochs=1", 1), "with other options");
  }
  test::write_file(file, with("config", "[train"));
  refused(tune("--vary lr --train.epochs=1", 1), "tune.json:1: not TOML");
  test::write_file(file, plan);
  EXPECT_EQ(tune("--vary lr --train.epochs=1", 1).status, 0);
}

// The trial at work fails, since its folder is gone; that is no reason to go on with the next.
TEST_F(Tune, ASearchWhoseFolderIsGoneEnds) {
  const std::string search = root_ + "/search";
  const Outcome ended = run_program(
      "tune --data.store=mine --train.epochs=100000 --eval.every=1 --model.width=16 "
      "--negatives.count=8 --train.threads=1 --train.peak_tflops=1 --trials 2 --out search",
      "cd " + root_ + " && (for i in $(seq 1 1000); do [ -e " + search +
          "/trial-01/metrics.jsonl ] && break; sleep 0.05; done; mv " + search + " " + search +
          "-elsewhere) & cd " + root_ + " && timeout -k 5 100 ");
  EXPECT_EQ(ended.status, 1) << ended.output;
  EXPECT_NE(ended.output.find("no longer the folder this search began in"), std::string::npos)
      << ended.output;
}

TEST_F(Tune, TrialsThatCannotBeTrainedAreNamed) {
  const Outcome outcome = tune("--optim.lr=1e30 --train.max_bad_steps=1", 2);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("trial 2 (lr "), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("no trial could be trained"), std::string::npos) << outcome.output;
}

// It has figures: evaluations come before the checkpoint that cannot be written.
TEST_F(Tune, WhereEveryTrialFailsNoneIsTheBest) {
  const Outcome full = run_program(
      "tune --data.store=mine --train.epochs=2 --eval.every=1 --model.width=64 --log.tensorboard="
      "false --negatives.count=8 --train.threads=1 --train.peak_tflops=1 --trials 2 --out search",
      "cd " + root_ + " && ulimit -f 40;");
  EXPECT_EQ(full.status, 1) << full.output;
  EXPECT_NE(contents_of(root_ + "/search/trial-01/metrics.jsonl").find("validation"),
            std::string::npos);
  EXPECT_NE(full.output.find("no trial could be trained, so there is no best one"),
            std::string::npos)
      << full.output;
  EXPECT_EQ(full.output.find("best: trial"), std::string::npos) << full.output;
}

}  // namespace
}  // namespace turbogr
