// The ranking task through the real program: prepare, train, resume, evaluate, rank.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/mpirun.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/training.h"
#include "turbogr/dist/communicator.h"

namespace turbogr {
namespace {

using nlohmann::json;
using test::contents_of;
using test::Outcome;
using test::run_program;

// A world in which people like every item of their own colour, and the even ones among the others.
class Ranking : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new test::TemporaryFolder;
    std::ofstream log(root() + "/log.csv"), items(root() + "/items.csv"),
        users(root() + "/users.csv");
    log << "user_id,item_id,timestamp,like,tab\n";
    items << "item_id,colour\n";
    users << "user_id,colour\n";
    std::uint64_t state = 7;
    const auto draw = [&](std::uint64_t below) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<int>((state >> 33) % below);
    };
    for (int item = 0; item < 40; ++item) items << item << "," << item % 4 << "\n";
    for (int user = 0; user < 60; ++user) {
      users << user << "," << user % 4 << "\n";
      for (int i = 0; i < 30; ++i) {
        const int item = draw(40);
        const bool like = item % 4 == user % 4 || (item % 2 == 0 && draw(2) == 0);
        log << user << "," << item << "," << 1000 * user + 60 * i << "," << like << "," << draw(2)
            << "\n";
      }
    }
    log.close(), items.close(), users.close();
    const Outcome made = run_program(fmt::format(
        "data prepare {0}/log.csv --out {0}/store --signal-columns like --event-features tab "
        "--item-table {0}/items.csv --item-features colour:category --user-table {0}/users.csv "
        "--user-features colour:category",
        root()));
    ASSERT_EQ(made.status, 0) << made.output;
  }
  static void TearDownTestSuite() { delete folder_; }
  static std::string root() { return folder_->path().string(); }

  static Outcome train(const std::string& run, const std::string& more) {
    return run_program(arguments(run, more));
  }
  static std::string arguments(const std::string& run, const std::string& more) {
    return fmt::format(
        "train --task=ranking --data.store={0}/store --run.dir={0}/{1} --train.batch=16 "
        "--train.threads=1 --optim.warmup=5 --optim.lr=0.01 --model.layers=1 --model.width=16 "
        "--model.positions=128 --model.heads=1 --samples.targets=4 {2}",
        root(), run, more);
  }
  // Of the newest checkpoint.
  static std::string bytes(const std::string& run, const std::string& file) {
    const std::string checkpoints = root() + "/" + run + "/checkpoints/";
    std::string latest = contents_of(checkpoints + "latest");
    while (!latest.empty() && latest.back() == '\n') latest.pop_back();
    const std::string all = contents_of(checkpoints + latest + "/" + file);
    EXPECT_FALSE(all.empty()) << run << " " << file;
    return all;
  }

  // A figure of the last line that has it.
  static double last(const std::string& run, const char* key) {
    double value = 0;
    std::ifstream lines(root() + "/" + run + "/metrics.jsonl");
    for (std::string line; std::getline(lines, line);) {
      const json record = json::parse(line);
      if (record.contains(key)) value = record.at(key).get<double>();
    }
    return value;
  }

  static test::TemporaryFolder* folder_;
};
test::TemporaryFolder* Ranking::folder_ = nullptr;

// Colours as numbers: 0 to 3, ten items each.
TEST_F(Ranking, ANumberMayBeNormalisedAndARunRemembersHow) {
  const Outcome made = run_program(fmt::format(
      "data prepare {0}/log.csv --out {0}/numbers --signal-columns like --item-table {0}/items.csv "
      "--item-features colour:number",
      root()));
  ASSERT_EQ(made.status, 0) << made.output;
  const std::string keys = fmt::format(
      "--data.store={}/numbers --features.item.from=item --features.colour.from=item.colour "
      "--features.colour.number=normalised --train.epochs=0 ",
      root());
  const Outcome whole = train("normalised", keys + "--train.steps=6");
  ASSERT_EQ(whole.status, 0) << whole.output;
  EXPECT_NE(whole.output.find("colour (3 rows)"), std::string::npos) << whole.output;
  const std::string config = contents_of(root() + "/normalised/config.toml");
  EXPECT_NE(config.find("\nmean = 1.5"), std::string::npos) << config;
  EXPECT_NE(config.find("\nsd = 1.118"), std::string::npos) << config;
  ASSERT_EQ(train("parts", keys + "--train.steps=3").status, 0);
  const Outcome resumed = train("parts", keys + "--train.steps=6 --run.resume=true");
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  for (const char* file : {"model.safetensors", "table_colour-00001-of-00001.safetensors"}) {
    EXPECT_EQ(bytes("parts", file), bytes("normalised", file)) << file;
  }
}

// Counted anew by who reads the checkpoint, with any number of ranks: there is nothing to remember.
TEST_F(Ranking, RatesOfEarlierEventsAreCountedAgainWhereverARunIsRead) {
  const std::string keys =
      "--features.item.from=item --features.likes.from=item --features.likes.rate=like "
      "--features.own.cross='[\"user\",\"item.colour\"]' --features.own.rate=like "
      "--features.own.prior=2 --features.own.delay=60 --tasks.like.base='[\"own\"]' "
      "--train.epochs=9 ";
  const Outcome whole = train("rates", keys + "--train.steps=40");
  ASSERT_EQ(whole.status, 0) << whole.output;
  EXPECT_NE(whole.output.find("likes (3 rows), own (3 rows)"), std::string::npos) << whole.output;
  EXPECT_GT(last("rates", "auc"), 0.75) << "who likes a colour is known by own rates alone";
  ASSERT_EQ(train("rates-parts", keys + "--train.steps=17").status, 0);
  const Outcome resumed = train("rates-parts", keys + "--train.steps=40 --run.resume=true");
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  for (const char* file : {"model.safetensors", "table_likes-00001-of-00001.safetensors",
                           "table_own-00001-of-00001.safetensors"}) {
    EXPECT_TRUE(bytes("rates", file) == bytes("rates-parts", file)) << file;
  }
  const std::string eval = fmt::format(
      "eval --checkpoint {0}/rates --split test --no-popularity --json {0}/rates.json", root());
  const auto evaluated = [&] { return json::parse(contents_of(root() + "/rates.json"))[0]; };
  ASSERT_EQ(run_program(eval).status, 0);
  const json alone = evaluated();
  EXPECT_EQ(alone["auc"].get<double>(), last("rates", "auc"));
  if (dist::built_with_mpi()) {
    ASSERT_EQ(test::mpirun(3, test::program() + " " + eval).status, 0);
    EXPECT_EQ(evaluated()["auc"], alone["auc"]);
    EXPECT_NEAR(evaluated()["ne"].get<double>(), alone["ne"].get<double>(), 1e-6);
  }
  // Before the log began nothing had been counted.
  const std::string rank = "rank --checkpoint " + root() + "/rates --user 5 --items 3 --json";
  const Outcome newest = run_program(rank), first = run_program(rank + " --at 0");
  ASSERT_EQ(newest.status, 0) << newest.output;
  ASSERT_EQ(first.status, 0) << first.output;
  EXPECT_NE(json::parse(newest.output)["items"], json::parse(first.output)["items"]);
}

class RankingOf : public Ranking, public ::testing::WithParamInterface<const char*> {
 protected:
  // Of the parameter's kind, in a run of its own.
  static std::string of_kind(const std::string& run) { return run + "-" + GetParam(); }
  static Outcome train_kind(const std::string& run, const std::string& more) {
    return train(of_kind(run), more + " --model.kind=" + GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Kind, RankingOf, ::testing::Values("hstu", "fuxi"),
                         [](const auto& each) { return std::string(each.param); });

TEST_P(RankingOf, LearnsAndIsEvaluatedAsItWasAtTheEnd) {
  const std::string run = root() + "/" + of_kind("run");
  // Histories that are as long in training: FuXi's maps know no places that were not trained.
  const Outcome trained = train_kind("run", "--train.epochs=6 --run.seed=3 --data.max_length=12");
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_NE(trained.output.find("predict  like"), std::string::npos) << trained.output;
  EXPECT_NE(trained.output.find("prefix   user (61 rows), colour (5 rows)"), std::string::npos)
      << trained.output;
  std::ifstream lines(run + "/metrics.jsonl");
  json test;
  for (std::string line; std::getline(lines, line);) {
    const json row = json::parse(line);
    if (row.value("split", "") == "test") test = row;
  }
  ASSERT_TRUE(test.contains("auc")) << trained.output;
  EXPECT_GT(test["auc"].get<double>(), 0.8);
  EXPECT_LT(test["ne"].get<double>(), 0.9);
  EXPECT_EQ(test["targets"].get<int>(), 60 * 4);
  const Outcome evaluated = run_program(
      fmt::format("eval --checkpoint {0} --split test --untrained --json {0}/eval.json", run));
  ASSERT_EQ(evaluated.status, 0) << evaluated.output;
  const json rows = json::parse(contents_of(run + "/eval.json"));
  ASSERT_EQ(rows.size(), 4u);
  for (const char* name :
       {"auc", "gauc", "gauc_by_targets", "ne", "accuracy", "targets", "groups", "calibration"}) {
    ASSERT_TRUE(test.contains(name)) << name;
    EXPECT_EQ(rows[0][name], test[name]) << name;
  }
  std::int64_t in_bins = 0;
  for (const json& bin : test["calibration"]["like"]) in_bins += bin["targets"].get<int>();
  EXPECT_EQ(in_bins, 60 * 4);
  EXPECT_LT(rows[1]["auc"].get<double>(), 0.7) << "untrained";
  EXPECT_EQ(rows[2]["ranking"], "counts of item");
  EXPECT_EQ(rows[3]["ranking"], "counts of item+user+tab");
  for (const int counted : {2, 3}) {
    EXPECT_LT(rows[counted]["auc"].get<double>(), test["auc"].get<double>());
    EXPECT_EQ(rows[counted]["targets"], test["targets"]);
  }
  EXPECT_NE(trained.output.find("test by counts of item+user+tab alone:"), std::string::npos)
      << trained.output;
  const Outcome report = run_program("report " + run);
  EXPECT_EQ(report.status, 0) << report.output;
  const std::string page = contents_of(run + "/report.html");
  EXPECT_NE(page.find("AUC"), std::string::npos);
  EXPECT_NE(page.find("Calibration of like"), std::string::npos);
}

TEST_P(RankingOf, ResumesBitEqualToNeverHavingStopped) {
  for (const std::string dtype : {"f32", "bf16"}) {
    const std::string options = "--train.epochs=9 --train.dtype=" + dtype + " --train.steps=";
    ASSERT_EQ(train_kind("whole-" + dtype, options + "40").status, 0);
    ASSERT_EQ(train_kind("parts-" + dtype, options + "17").status, 0);
    const Outcome resumed = train_kind("parts-" + dtype, options + "40 --run.resume=true");
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    for (const char* file :
         {"model.safetensors", "optimiser.safetensors", "table_item-00001-of-00001.safetensors",
          "table_user-00001-of-00001.safetensors"}) {
      EXPECT_TRUE(bytes(of_kind("whole-" + dtype), file) == bytes(of_kind("parts-" + dtype), file))
          << dtype << " " << file;
    }
  }
  const Outcome other = train_kind("parts-f32",
                                   "--train.epochs=9 --run.resume=true "
                                   "--samples.targets=5 --train.steps=50");
  EXPECT_NE(other.status, 0);
  EXPECT_NE(other.output.find("samples.targets is 5, was 4"), std::string::npos) << other.output;
}

// Every schedule but the late one has the bits of serial, resumed or not; all of them learn.
TEST_F(Ranking, SchedulesOfSeveralRanksAreBitEqual) {
  if (!dist::built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  const auto train_ranks = [](const std::string& run, const std::string& more) {
    return test::mpirun(
        3, test::program() + " " +
               arguments(run, "--train.epochs=9 --eval.every=0 --dist.timeout=60 " + more));
  };
  const auto tensors = [](const std::string& run) {
    return test::tensors_of(root() + "/" + run + "/checkpoints/step-000000030");
  };
  ASSERT_EQ(train_ranks("serial", "--train.steps=30 --train.schedule=serial").status, 0);
  const Outcome chosen = train_ranks("auto", "--train.steps=30 --run.trace=true");
  ASSERT_EQ(chosen.status, 0) << chosen.output;
  EXPECT_NE(chosen.output.find("schedule exact_prefetch"), std::string::npos) << chosen.output;
  EXPECT_TRUE(tensors("auto") == tensors("serial"));
  const std::string trace = contents_of(root() + "/auto/trace.json");
  for (const char* stage : {"find ids", "exchange ids", "fetch changed rows"}) {
    EXPECT_NE(trace.find(stage), std::string::npos) << stage;
  }
  // Sequences shared out by cost, or as they come: other sums, the same training.
  const Outcome dealt = train_ranks("dealt", "--train.steps=30 --dist.balance=false");
  ASSERT_EQ(dealt.status, 0) << dealt.output;
  EXPECT_FALSE(tensors("dealt") == tensors("serial"));
  EXPECT_NEAR(last("dealt", "loss"), last("serial", "loss"), 1e-4);
  ASSERT_EQ(train_ranks("overlap", "--train.steps=13 --train.schedule=overlap").status, 0);
  const Outcome resumed =
      train_ranks("overlap", "--train.steps=30 --train.schedule=overlap --run.resume=true");
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_TRUE(tensors("overlap") == tensors("serial"));
  const Outcome late = train_ranks("late", "--train.steps=30 --train.schedule=semi_async");
  ASSERT_EQ(late.status, 0) << late.output;
  EXPECT_FALSE(tensors("late") == tensors("serial"));
}

// Other numbers of ranks sum in another order.
TEST_F(Ranking, ACheckpointOfThreeRanksGoesOnOnAnyNumber) {
  if (!dist::built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  const std::string keys = "--train.epochs=9 --eval.every=0 --log.every=1 --dist.timeout=60 ";
  const auto train_ranks = [&](int ranks, const std::string& run, const std::string& more) {
    const std::string command = test::program() + " " + arguments(run, keys + more);
    return ranks == 1 ? test::run_command(command) : test::mpirun(ranks, command);
  };
  ASSERT_EQ(train_ranks(3, "three-whole", "--train.steps=20").status, 0);
  ASSERT_EQ(train_ranks(3, "three", "--train.steps=11").status, 0);
  for (const int ranks : {1, 2, 4}) {
    const std::string name = fmt::format("three-on-{}", ranks);
    std::filesystem::copy(root() + "/three", root() + "/" + name,
                          std::filesystem::copy_options::recursive);
    const Outcome resumed = train_ranks(ranks, name, "--train.steps=20 --run.resume=true");
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_NE(resumed.output.find("at step 11"), std::string::npos) << resumed.output;
    EXPECT_EQ(last(name, "step"), 20);
    EXPECT_NEAR(last(name, "loss"), last("three-whole", "loss"), 1e-4) << name;
    EXPECT_NEAR(last(name, "auc"), last("three-whole", "auc"), 0.01) << name;
    EXPECT_TRUE(std::filesystem::exists(
        root() + "/" + name +
        fmt::format("/checkpoints/step-000000020/table_item-00001-of-{:05}.safetensors", ranks)));
  }
}

// Groups of one rank, saved and evaluated between two means; users, items and features have tables
// of their own.
TEST_F(Ranking, AveragedReplicasResumeBitEqual) {
  if (!dist::built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  const std::string keys =
      "--train.epochs=9 --eval.every=0 --dist.timeout=60 --dist.group=1 --dist.replicas=average "
      "--dist.average_every=7 --checkpoint.every=4 --checkpoint.keep_last=9 --eval.every_steps=4 ";
  const auto train_ranks = [&](const std::string& run, const std::string& more) {
    return test::mpirun(2, test::program() + " " + arguments(run, keys + more));
  };
  const Outcome whole = train_ranks("averaged", "--train.steps=12");
  ASSERT_EQ(whole.status, 0) << whole.output;
  EXPECT_NE(whole.output.find("replicas average"), std::string::npos) << whole.output;
  const std::string parts = root() + "/averaged-parts";
  std::filesystem::copy(root() + "/averaged", parts, std::filesystem::copy_options::recursive);
  for (const char* step : {"08", "12"}) {
    std::filesystem::remove_all(parts + "/checkpoints/step-0000000" + step);
  }
  std::ofstream(parts + "/checkpoints/latest") << "step-000000004\n";
  const Outcome resumed = train_ranks("averaged-parts", "--train.steps=12 --run.resume=true");
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  ASSERT_NE(resumed.output.find("at step 4"), std::string::npos) << resumed.output;
  const auto tensors = [](const std::string& run) {
    return test::tensors_of(root() + "/" + run + "/checkpoints/step-000000012");
  };
  EXPECT_TRUE(tensors("averaged") == tensors("averaged-parts"));
  EXPECT_EQ(last("averaged", "loss"), last("averaged-parts", "loss"));
  EXPECT_EQ(last("averaged", "auc"), last("averaged-parts", "auc"));
  ASSERT_EQ(test::mpirun(2, test::program() + " " +
                                arguments("exact",
                                          "--train.epochs=9 --eval.every=0 "
                                          "--dist.group=1 --train.steps=12"))
                .status,
            0);
  EXPECT_FALSE(tensors("averaged") == tensors("exact")) << "nothing was averaged";
  EXPECT_NEAR(last("averaged", "loss"), last("exact", "loss"), 0.05);
}

TEST_F(Ranking, ADryRunPlansForAnyNumberOfRanks) {
  const auto planned = [](int world) {
    const Outcome plan = train("dry", fmt::format("--run.dry_run=true --dist.world={}", world));
    EXPECT_EQ(plan.status, 0) << plan.output;
    if (world > 1) {
      EXPECT_NE(plan.output.find(fmt::format("ranks    {} in 1 groups", world)), std::string::npos)
          << plan.output;
      EXPECT_NE(plan.output.find("balanced by cost"), std::string::npos) << plan.output;
    }
    const std::size_t at = plan.output.find("memory   ");
    return at == std::string::npos ? 0.0 : std::stod(plan.output.substr(at + 9));
  };
  EXPECT_GT(planned(1), 0);
  EXPECT_LT(planned(8), planned(2));
}

TEST_F(Ranking, ABatchInPartsAndAFallingRateTrain) {
  const std::string options = "--train.epochs=2 --model.dropout=0 --model.input_dropout=0 ";
  ASSERT_EQ(train("whole-batch", options).status, 0);
  const Outcome parts = train("batch-parts", options + "--train.accumulate=4");
  ASSERT_EQ(parts.status, 0) << parts.output;
  EXPECT_GT(last("whole-batch", "loss"), 0);
  EXPECT_NEAR(last("batch-parts", "loss"), last("whole-batch", "loss"), 1e-5);
  EXPECT_NEAR(last("batch-parts", "auc"), last("whole-batch", "auc"), 1e-3);
  const Outcome falling = train("falling", options + "--optim.schedule=linear");
  ASSERT_EQ(falling.status, 0) << falling.output;
  EXPECT_LT(last("falling", "lr"), 0.3 * last("whole-batch", "lr"));
  const Outcome many = train("many", "--train.accumulate=17");
  EXPECT_NE(many.output.find("at most 16 parts"), std::string::npos) << many.output;
}

TEST_P(RankingOf, ScoresItemsOneByOneAsTogether) {
  ASSERT_EQ(train_kind("scored", "--train.epochs=4").status, 0);
  const std::string rank = "rank --checkpoint " + root() + "/" + of_kind("scored") + " ";
  const Outcome some = run_program(rank + "--user 5 --items 1,2,3 --json");
  ASSERT_EQ(some.status, 0) << some.output;
  const json together = json::parse(some.output);
  ASSERT_EQ(together["items"].size(), 3u);
  EXPECT_EQ(together["user"], 5);
  double last = 1;
  for (const json& each : together["items"]) {
    const auto score = each["scores"]["like"].get<double>();
    EXPECT_LE(score, last);
    last = score;
    const Outcome one = run_program(rank + "--user 5 --json --items " + each["item"].dump());
    EXPECT_NEAR(json::parse(one.output)["items"][0]["scores"]["like"].get<double>(), score, 1e-5);
  }

  std::ofstream(root() + "/requests.jsonl")
      << "{\"user\": 5, \"items\": [1, 2, 3]}\n"
         "{\"user\": \"nobody\", \"items\": [\"7\"], \"at\": 99, \"context\": {\"tab\": 1}}\n";
  const Outcome many = run_program(rank + fmt::format("--requests {0}/requests.jsonl --out "
                                                      "{0}/scores.csv",
                                                      root()));
  ASSERT_EQ(many.status, 0) << many.output;
  const std::string csv = contents_of(root() + "/scores.csv");
  const auto first = together["items"][0]["item"].dump();
  EXPECT_TRUE(csv.starts_with("user,place,item,like\n5,1," + first + ",")) << csv;
  EXPECT_NE(csv.find("\nnobody,1,7,"), std::string::npos) << csv;
  EXPECT_NE(many.output.find("judged without a history"), std::string::npos) << many.output;
}

TEST_F(Ranking, QuestionsThatAreNoneAreRefused) {
  ASSERT_EQ(train("questioned", "--train.steps=2").status, 0);
  const std::string rank = "rank --checkpoint " + root() + "/questioned ";
  const struct {
    const char *arguments, *message;
  } refused[] = {
      {"--items 1", "rank for whom?"},
      {"--user 5", "rank what?"},
      {"--user 5 --items ,", "--items , names no item"},
      {"--user 5 --items-file /dev/null", "'/dev/null' names no item"},
      {"--user 5 --items 1 --by clicks", "there is no such task; the model has like"},
      {"--user 5 --items 1 --context tab", "write FEATURE=VALUE"},
      {"--user 5 --items 1 --context tub=1", "it has: tab"},
      {"--user 5 --items 1 --out x.txt", "as .csv or .jsonl"},
  };
  for (const auto& each : refused) {
    const Outcome outcome = run_program(rank + each.arguments);
    EXPECT_NE(outcome.status, 0) << each.arguments;
    EXPECT_NE(outcome.output.find(each.message), std::string::npos) << outcome.output;
  }
  const Outcome recommend =
      run_program("recommend --checkpoint " + root() + "/questioned --user 5");
  EXPECT_NE(recommend.output.find("use `turbogr rank --checkpoint RUN --user U --items A,B` for"),
            std::string::npos)
      << recommend.output;
  EXPECT_EQ(recommend.output.find("warning"), std::string::npos) << recommend.output;
}

TEST_F(Ranking, AStoreWhoseCodesMeanSomethingElseIsRefused) {
  ASSERT_EQ(train("coloured", "--train.steps=2").status, 0);
  std::ofstream items(root() + "/renamed.csv");
  items << "item_id,colour\n";
  for (int item = 0; item < 40; ++item) items << item << "," << 7 - item % 4 << "\n";
  items.close();
  const Outcome made = run_program(fmt::format(
      "data prepare {0}/log.csv --out {0}/renamed --signal-columns like --event-features tab "
      "--item-table {0}/renamed.csv --item-features colour:category --user-table {0}/users.csv "
      "--user-features colour:category",
      root()));
  ASSERT_EQ(made.status, 0) << made.output;
  for (const char* command : {"rank --user 5 --items 1,2", "eval"}) {
    const Outcome own = run_program(fmt::format(
        "{1} --checkpoint {0}/coloured --store {0}/store --threads 1", root(), command));
    EXPECT_EQ(own.status, 0) << own.output;
    const Outcome other = run_program(fmt::format(
        "{1} --checkpoint {0}/coloured --store {0}/renamed --threads 1", root(), command));
    EXPECT_NE(other.status, 0) << command;
    EXPECT_NE(other.output.find("in which the codes of 'item.colour' stand for others"),
              std::string::npos)
        << other.output;
  }
}

// The advice must not lead from one refusal to the next: a run may begin with the weights of
// another on a store with more events, and not on one with more items.
TEST_F(Ranking, AStoreWithMoreEventsGivesANewRunAndOneWithMoreItemsANewModel) {
  ASSERT_EQ(train("before", "--train.steps=2").status, 0);
  std::filesystem::copy(root() + "/before", root() + "/grown",
                        std::filesystem::copy_options::recursive);
  const auto on = [](const std::string& run, const std::string& event, const std::string& more) {
    std::ofstream(root() + "/longer.csv") << contents_of(root() + "/log.csv") << event << "\n";
    const Outcome made = run_program(fmt::format(
        "data prepare {0}/longer.csv --overwrite --out {0}/longer "
        "--signal-columns like --event-features tab --item-table {0}/items.csv --item-features "
        "colour:category --user-table {0}/users.csv --user-features colour:category",
        root()));
    EXPECT_EQ(made.status, 0) << made.output;
    return train(run, fmt::format("--data.store={}/longer --train.steps=4 {}", root(), more));
  };
  const std::string from = "--run.start_from=" + root() + "/before";
  const std::string known = "0,1,70000,1,0", fresh = "0,40,70000,1,0";
  const Outcome events = on("grown", known, "--run.resume=true");
  EXPECT_NE(events.output.find("on this one with --run.start_from="), std::string::npos)
      << events.output;
  const Outcome started = on("after", known, from);
  EXPECT_EQ(started.status, 0) << started.output;
  for (const Outcome& items :
       {on("grown", fresh, "--run.resume=true"), on("never", fresh, from),
        run_program(fmt::format("eval --checkpoint {0}/before --store {0}/longer", root()))}) {
    EXPECT_EQ(items.status, 1) << items.output;
    EXPECT_NE(items.output.find("has 40 items and the store"), std::string::npos) << items.output;
    EXPECT_NE(items.output.find("or train a new model on this one"), std::string::npos)
        << items.output;
    EXPECT_EQ(items.output.find("start_from"), std::string::npos) << items.output;
  }
}

TEST_F(Ranking, AStoreWithOtherSignalsIsRefused) {
  ASSERT_EQ(train("signals", "--train.steps=2").status, 0);
  const Outcome made = run_program(fmt::format(
      "data prepare {0}/log.csv --out {0}/signals-store --label other=tab==1 --signal-columns like "
      "--event-features tab --item-table {0}/items.csv --item-features colour:category "
      "--user-table "
      "{0}/users.csv --user-features colour:category",
      root()));
  ASSERT_EQ(made.status, 0) << made.output;
  for (const std::string command :
       {"rank --user 5 --items 1,2 --checkpoint {0}/signals --store {0}/signals-store",
        "eval --checkpoint {0}/signals --store {0}/signals-store"}) {
    const Outcome other = run_program(fmt::format(fmt::runtime(command), root()));
    EXPECT_NE(other.status, 0) << command;
    EXPECT_NE(other.output.find("with the signals like in this order"), std::string::npos)
        << other.output;
  }
}

TEST_F(Ranking, CodesOfADamagedStoreAreNamed) {
  ASSERT_EQ(train("whole", "--train.steps=2").status, 0);
  std::filesystem::copy(root() + "/store", root() + "/damaged");
  std::fstream codes(root() + "/damaged/event_feature_tab.bin",
                     std::ios::in | std::ios::out | std::ios::binary);
  ASSERT_TRUE(codes.good());
  const std::vector<std::int32_t> far(500, 0x7f000001);
  codes.write(reinterpret_cast<const char*>(far.data()), 4 * std::ssize(far));
  codes.close();
  const std::string with_rates =
      "train --task=ranking --data.store={0}/damaged --run.dir={0}/rates-of-damaged "
      "--train.steps=2 --features.often.from=event.tab --features.often.rate=like "
      "--features.item.from=item";
  for (const std::string& command :
       {std::string("eval --checkpoint {0}/whole --store {0}/damaged --split test"),
        std::string("eval --checkpoint {0}/whole --store {0}/damaged --split test --no-popularity"),
        std::string("rank --user 0 --items 1,2 --checkpoint {0}/whole --store {0}/damaged"),
        std::string("train --task=ranking --data.store={0}/damaged --run.dir={0}/of-damaged "
                    "--train.steps=2"),
        with_rates}) {
    const Outcome outcome = run_program(fmt::format(fmt::runtime(command), root()));
    EXPECT_EQ(outcome.status, 1) << command << outcome.output;
    EXPECT_NE(outcome.output.find("event feature 'tab' has code 2130706433"), std::string::npos)
        << outcome.output;
  }
}

// The test of each of 60 users is their last 8 events: one group a user, or two samples of 4.
TEST_F(Ranking, GaucComparesTargetsOfAUserOrOfARequest) {
  const std::string keys = "--train.steps=20 --data.holdout=last:27% ";
  const Outcome trained = train("by-request", keys + "--eval.group=request");
  ASSERT_EQ(trained.status, 0) << trained.output;
  const std::string run = root() + "/by-request";
  const auto evaluated = [&](const std::string& more) {
    const Outcome outcome = run_program(
        fmt::format("eval --checkpoint {0} --threads 1 --json {0}/eval.json {1}", run, more));
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("GAUC by " + std::string(more.empty() ? "request" : "user")),
              std::string::npos)
        << outcome.output;
    return json::parse(contents_of(run + "/eval.json"));
  };
  const json requests = evaluated(""), users = evaluated("--group user");
  EXPECT_EQ(requests[0]["gauc"].get<double>(), last("by-request", "gauc"));
  EXPECT_EQ(requests[0]["groups"].get<double>(), last("by-request", "groups"));
  EXPECT_EQ(requests[0]["group"], "request");
  EXPECT_EQ(users[0]["group"], "user");
  for (std::size_t row = 0; row < requests.size(); ++row) {  // the model's, and counting's
    EXPECT_EQ(requests[row]["auc"], users[row]["auc"]);
    EXPECT_NE(requests[row]["gauc"], users[row]["gauc"]);
    EXPECT_LE(users[row]["groups"].get<int>(), 60);
    EXPECT_GT(requests[row]["groups"].get<int>(), 60);
  }
  const Outcome other = train("by-request", keys + "--run.resume=true --eval.group=user");
  EXPECT_NE(other.output.find("eval.group is \"user\", was \"request\""), std::string::npos)
      << other.output;
}

// Nothing would stop such a run early, and no checkpoint would be its best.
TEST_F(Ranking, RefusesToGoByAGaucOfGroupsOfOneTarget) {
  const auto refused = [](const std::string& more, const std::string& group) {
    const Outcome outcome = train("alone", "--train.patience=2 --eval.every=1 " + more);
    EXPECT_EQ(outcome.status, 1) << more;
    EXPECT_NE(outcome.output.find("no " + group +
                                  " has two on the validation split: an evaluation "
                                  "gives auc, ne, accuracy; choose one of these"),
              std::string::npos)
        << outcome.output;
    EXPECT_FALSE(std::filesystem::exists(root() + "/alone")) << more;
  };
  const std::string alone = "--samples.targets=1 --eval.metric=";
  refused("--samples.builder=anchors --eval.group=request " + alone + "gauc", "request");
  refused("--eval.group=request " + alone + "gauc_by_targets", "request");
  refused(alone + "gauc", "user");
  // A user's share of events is many samples of one target.
  const Outcome users = train("alone",
                              "--train.patience=2 --eval.every=1 --run.dry_run=true "
                              "--data.holdout=last:20%,20% " +
                                  alone + "gauc");
  EXPECT_EQ(users.status, 0) << users.output;
}

TEST_F(Ranking, RequestsThatAreNoneAreNamed) {
  ASSERT_EQ(train("asked", "--train.steps=2").status, 0);
  const struct {
    const char *line, *message;
  } cases[] = {
      {R"({"user": 5, "item": [1]})", R"(unknown key "item"; did you mean "items"?)"},
      {R"({"user": 5, "items": [1], "colour": 2})", R"(unknown key "colour"; A request has user)"},
      {R"({"items": [1]})", R"(no "user"; a request has user and items)"},
      {R"({"user": 5})", R"(no "items")"},
      {R"({"user": null, "items": [1]})", R"("user" is null (null); wanted: a whole number)"},
      {R"({"user": 1.5, "items": [1]})", R"("user" is 1.5 (a number))"},
      {R"({"user": 5, "items": 1})", R"("items" is 1; wanted: a list)"},
      {R"({"user": 5, "items": []})", R"("items" is []; wanted: a list of one or more)"},
      {R"({"user": 5, "items": [[1]]})", R"("items" is [1] (a list))"},
      {R"({"user": 5, "items": [1], "at": "now"})", R"("at" is "now" (text); wanted: a whole)"},
      {R"({"user": 5, "items": [1], "context": 3})", R"("context" is 3 (a number); wanted: an)"},
      {R"({"user": 5, "items": [1], "context": {"tab": true}})",
       R"("tab" is true (true or false))"},
      {R"({"user": 5, "items": [1], "context": {"tub": 1}})", "it has: tab"},
      {R"([5, 1])", "the line is a list; wanted: an object"},
      {R"({"user": 5, "items": [1], "at": 9999999999999999999})", "wanted: a whole number of 64"},
      {R"({"user": 5)", "the line is no JSON"},
  };
  for (const auto& each : cases) {
    std::ofstream(root() + "/odd.jsonl") << "{\"user\": 5, \"items\": [1]}\n" << each.line << "\n";
    const Outcome outcome = run_program(
        fmt::format("rank --checkpoint {0}/asked --requests {0}/odd.jsonl --threads 1", root()));
    EXPECT_NE(outcome.status, 0) << each.line;
    EXPECT_NE(outcome.output.find("odd.jsonl:2: "), std::string::npos) << outcome.output;
    EXPECT_NE(outcome.output.find(each.message), std::string::npos) << outcome.output;
  }
  const Outcome endless =
      run_program("rank --threads 1 --checkpoint " + root() + "/asked --requests /dev/zero",
                  "ulimit -v 2000000; timeout 60 ");
  EXPECT_EQ(endless.status, 1) << endless.output;
  EXPECT_NE(endless.output.find("line 1: more than 16384 kB without a line's end"),
            std::string::npos)
      << endless.output;
}

// Its lines are checked by the official tool in tests/unit/mllog_test.cc.
TEST_F(Ranking, LogsARunInTheLinesOfMlPerf) {
  const std::string options = "--train.steps=12 --eval.every_steps=4 --run.mllog=true";
  const Outcome trained = train("logged", options);
  ASSERT_EQ(trained.status, 0) << trained.output;
  std::ifstream lines(root() + "/logged/mllog.txt");
  std::vector<int> evaluated;
  std::string status;
  std::int64_t train_samples = 0, eval_samples = 0;
  for (std::string line; std::getline(lines, line);) {
    ASSERT_TRUE(line.starts_with(":::MLLOG ")) << line;
    const json fields = json::parse(line.substr(9));
    if (fields["key"] == "eval_accuracy") evaluated.push_back(fields["metadata"]["samples_count"]);
    if (fields["key"] == "run_stop") status = fields["metadata"]["status"];
    if (fields["key"] == "train_samples") train_samples = fields["value"];
    if (fields["key"] == "eval_samples") eval_samples = fields["value"];
  }
  EXPECT_EQ(evaluated, (std::vector<int>{4 * 16, 8 * 16, 12 * 16}));
  EXPECT_TRUE(status == "aborted" || status == "success") << status;
  EXPECT_GT(train_samples, 60);
  EXPECT_EQ(eval_samples, 60);
  EXPECT_NE(train("unlogged", "--train.steps=1 --run.mllog=true").output.find("eval.every_steps"),
            std::string::npos);
}

TEST_F(Ranking, PlansTablesThatThisMachineHasNoRoomFor) {
  std::ofstream(root() + "/large.toml") << "task = \"ranking\"\n"
                                           "[model]\nembedding = 512\n"
                                           "[features.user]\nfrom = \"user\"\n"
                                           "[features.item]\nfrom = \"item\"\n"
                                           "[tables.item]\nrows = 200000000\n"
                                           "[tasks.like]\n";
  const Outcome planned = run_program(fmt::format(
      "train {0}/large.toml --data.store={0}/store --run.dir={0}/large --run.dry_run=true "
      "--train.threads=1",
      root()));
  ASSERT_EQ(planned.status, 0) << planned.output;
  // 200,000,000 rows of 512 numbers and one for the optimiser.
  EXPECT_NE(planned.output.find("391388.1 tables and their state"), std::string::npos)
      << planned.output;
}

TEST_F(Ranking, KeepsTheBestByAValidationSplitOfAShareOrATime) {
  for (const std::string holdout : {"last:10%,20%", "time:20000,40000"}) {
    const Outcome trained = train("held-out",
                                  "--train.epochs=2 --eval.every=1 "
                                  "--checkpoint.keep_best=1 "
                                  "--data.holdout=" +
                                      holdout);
    ASSERT_EQ(trained.status, 0) << trained.output;
    EXPECT_NE(trained.output.find("validation after 1.00 epochs"), std::string::npos)
        << trained.output;
    EXPECT_NE(trained.output.find("test of the best checkpoint"), std::string::npos)
        << trained.output;
    std::filesystem::remove_all(root() + "/held-out");
  }
}

TEST_F(Ranking, StopsEarlyByTheValidationSplitAndKeepsTheBest) {
  const Outcome trained =
      train("early",
            "--train.epochs=40 --train.patience=2 --eval.every=1 --eval.metric=ne "
            "--checkpoint.keep_best=1 --optim.lr=0.05");
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_NE(trained.output.find("stopping early"), std::string::npos) << trained.output;
  EXPECT_TRUE(std::filesystem::exists(root() + "/early/checkpoints/best"));
  const Outcome wrong = train("wrong", "--train.patience=2 --eval.every=1 --eval.metric=mse");
  EXPECT_NE(wrong.output.find("an evaluation gives auc, gauc, gauc_by_targets, ne, accuracy"),
            std::string::npos)
      << wrong.output;
}

TEST_F(Ranking, SaysOnceThatItsMetricHasNoValue) {
  const Outcome made = run_program(fmt::format(
      "data prepare {0}/log.csv --out {0}/same --label 'shown=tab>=0' --event-features tab",
      root()));
  ASSERT_EQ(made.status, 0) << made.output;
  const Outcome trained = run_program(fmt::format(
      "train --task=ranking --data.store={0}/same --run.dir={0}/no-score --train.epochs=2 "
      "--tasks.shown.weight=1 --train.batch=16 --eval.every=1 --checkpoint.keep_best=1 "
      "--model.layers=1 --model.width=16 "
      "--model.positions=128 --model.heads=1 --samples.targets=4",
      root()));
  ASSERT_EQ(trained.status, 0) << trained.output;
  const std::string warning = "eval.metric = \"auc\" has no value on the validation split";
  const std::size_t first = trained.output.find(warning);
  ASSERT_NE(first, std::string::npos) << trained.output;
  EXPECT_EQ(trained.output.find(warning, first + 1), std::string::npos) << trained.output;
  EXPECT_FALSE(std::filesystem::exists(root() + "/no-score/checkpoints/best"));
}

}  // namespace
}  // namespace turbogr
