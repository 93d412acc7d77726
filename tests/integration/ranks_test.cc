// The real program under mpirun: the same training on any number of ranks, checkpoints between
// them, and ranks that are killed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/support/mpirun.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/training.h"
#include "turbogr/core/output_file.h"
#include "turbogr/dist/communicator.h"

namespace turbogr {
namespace {

using test::Outcome;
using test::run_program;

class Ranks : public testing::Test {
 protected:
  test::TemporaryFolder folder_;
  std::string root_ = folder_.path().string();
  std::string store_ = root_ + "/store";

  void SetUp() override {
    if (!dist::built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
    const Outcome made = run_program(
        "data synth --like kuairand27k --users 60 --items 80 --mean-length 30 --max-length 60 "
        "--seed 3 --threads 1 --out " +
        store_);
    ASSERT_EQ(made.status, 0) << made.output;
  }

  std::string command(const std::string& run, const std::string& more) const {
    return test::program() + " train " + test::source_dir() +
           "/configs/demo.toml --data.store=" + store_ + " --run.dir=" + root_ + "/" + run +
           " --data.max_length=24 --model.width=16 --model.heads=2 --model.dq=8 --model.dv=8"
           " --train.tokens=0 --train.batch=16 --train.threads=1 --train.epochs=50"
           " --negatives.count=8 --log.every=1 --log.progress=none --log.tensorboard=false"
           " --train.peak_tflops=1 --eval.every=0 --checkpoint.every_epochs=0 --dist.timeout=60"
           " --embedding.optimiser=adagrad --embedding.eps=0.01 --optim.eps=0.001"
           " --optim.schedule=constant --model.temperature=1 " +
           more;
  }
  Outcome train(int ranks, const std::string& run, const std::string& more) const {
    return ranks == 1 ? test::run_command(command(run, more))
                      : test::mpirun(ranks, command(run, more));
  }
  // Values of a key over the lines of a split ("" for training).
  std::vector<double> figures(const std::string& run, const std::string& key) const {
    std::vector<double> values;
    std::ifstream lines(root_ + "/" + run + "/metrics.jsonl");
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::json record = nlohmann::json::parse(line);
      if (record.contains(key)) values.push_back(record.at(key).get<double>());
    }
    return values;
  }
  static void expect_near(const std::vector<double>& a, const std::vector<double>& b,
                          double tolerance, const std::string& what) {
    ASSERT_EQ(a.size(), b.size()) << what;
    ASSERT_FALSE(a.empty()) << what;
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << what << i;
  }
};

TEST_F(Ranks, TrainAsOneDoes) {
  const Outcome alone = train(1, "alone", "--train.steps=8");
  ASSERT_EQ(alone.status, 0) << alone.output;
  const std::vector<double> losses = figures("alone", "loss");
  const std::vector<double> quality = figures("alone", "ndcg@10");
  const struct {
    int ranks;
    std::string name, more;
  } cases[] = {{2, "two", ""},
               {4, "four", "--dist.group=2 --dist.placement=hash --train.schedule=exact_prefetch"},
               {4, "spread", "--dist.group=2 --dist.ranks_per_node=2 --dist.spread=true"},
               {3, "three", "--train.schedule=overlap --dist.balance=false"}};
  for (const auto& each : cases) {
    const Outcome many = train(each.ranks, each.name, "--train.steps=8 " + each.more);
    ASSERT_EQ(many.status, 0) << many.output;
    expect_near(losses, figures(each.name, "loss"), 1e-5, each.name);
    expect_near(quality, figures(each.name, "ndcg@10"), 0.02, each.name);
    EXPECT_NE(many.output.find("ranks    " + std::to_string(each.ranks)), std::string::npos)
        << many.output;
    if (each.more.empty()) {
      EXPECT_NE(many.output.find("schedule exact_prefetch"), std::string::npos) << many.output;
    }
  }
  // What reads rows late does so on any number of ranks.
  const std::string semi_async = "--train.steps=8 --train.schedule=semi_async";
  for (const int ranks : {1, 2}) {
    const Outcome late = train(ranks, "late" + std::to_string(ranks), semi_async);
    ASSERT_EQ(late.status, 0) << late.output;
  }
  expect_near(figures("late1", "loss"), figures("late2", "loss"), 1e-5, "semi_async");
  EXPECT_NE(losses, figures("late1", "loss"));
}

// Fixed ranks: the weights' bytes. Other layouts sum in another order.
TEST_F(Ranks, SchedulesAreBitEqualAndLayoutsAlike) {
  const auto weights = [&](const std::string& run) {
    return test::tensors_of(root_ + "/" + run + "/checkpoints/step-000000006");
  };
  const std::string base = "--train.steps=6 --optim.clip=0 ";
  ASSERT_EQ(train(4, "first", base + "--dist.group=2 --train.schedule=serial").status, 0);
  const struct {
    std::string name, more;
  } equal[] = {{"again", "--train.schedule=serial"},
               {"default", ""},
               {"overlap", "--train.schedule=overlap"},
               {"prefetch", "--train.schedule=exact_prefetch"},
               {"on_time", "--train.schedule=semi_async --train.delay=0"}};
  for (const auto& each : equal) {
    const Outcome done = train(4, each.name, base + "--dist.group=2 " + each.more);
    ASSERT_EQ(done.status, 0) << done.output;
    EXPECT_TRUE(weights("first") == weights(each.name)) << each.name;
  }
  for (const char* group : {"1", "4"}) {
    const std::string name = std::string("groups_of_") + group;
    const Outcome done = train(4, name, base + "--dist.group=" + group);
    ASSERT_EQ(done.status, 0) << done.output;
    expect_near(figures("first", "loss"), figures(name, "loss"), 1e-5, name);
    expect_near(figures("first", "ndcg@10"), figures(name, "ndcg@10"), 0.02, name);
  }
}

TEST_F(Ranks, ACheckpointOfFourServesAnyNumber) {
  ASSERT_EQ(train(4, "four", "--train.steps=4").status, 0);
  ASSERT_EQ(train(4, "more", "--train.steps=7").status, 0);
  const std::vector<double> losses = figures("more", "loss");
  for (const int ranks : {1, 2, 3, 8}) {
    const std::string name = "on" + std::to_string(ranks);
    ASSERT_EQ(std::system(("cp -r " + root_ + "/four " + root_ + "/" + name).c_str()), 0);
    const Outcome resumed = train(ranks, name, "--train.steps=7 --run.resume=true");
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    expect_near(losses, figures(name, "loss"), 1e-5, name);
    const std::vector<double> quality = figures(name, "ndcg@10");
    ASSERT_FALSE(quality.empty());
    EXPECT_NEAR(figures("more", "ndcg@10").back(), quality.back(), 0.02) << name;
  }
}

// 400 MB of rows where no process may have more than 390: trained, evaluated, saved, and resumed by
// another number of ranks.
TEST_F(Ranks, ATableLargerThanAnyRanksMemoryIsTrainedSavedResumedAndRecommends) {
  const std::string big = root_ + "/big";
  ASSERT_EQ(run_program("data synth --users 3000 --items 400000 --mean-length 150 --max-length 200"
                        " --threads 1 --out " +
                        big)
                .status,
            0);
  const std::string limited = "prlimit --data=390000000 " + test::program() +
                              " --log-level error train --data.store=" + big +
                              " --data.max_length=64 --model.layers=1 --model.width=1024"
                              " --model.heads=2 --model.dq=32 --model.dv=32 --negatives.count=64"
                              " --negatives.set=batch --train.tokens=512 --train.epochs=0"
                              " --log.progress=none --train.peak_tflops=1 --train.threads=1"
                              " --eval.max_users=20 --log.tensorboard=false"
                              " --checkpoint.background=false --checkpoint.keep_best=0"
                              " --embedding.optimiser=adagrad --run.dir=" +
                              root_;
  const Outcome alone = test::run_command(limited + "/one --train.steps=1");
  EXPECT_EQ(alone.status, 1);
  EXPECT_NE(alone.output.find("out of memory"), std::string::npos) << alone.output;
  const Outcome four = test::mpirun(4, limited + "/many --train.steps=2");
  ASSERT_EQ(four.status, 0) << four.output;
  EXPECT_FALSE(figures("many", "ndcg@10").empty());
  const Outcome three = test::mpirun(3, limited + "/many --train.steps=4 --run.resume=true");
  ASSERT_EQ(three.status, 0) << three.output;
  EXPECT_TRUE(std::filesystem::exists(root_ + "/many/checkpoints/step-000000004/"
                                              "items-00003-of-00003.safetensors"));
  const std::string recommend = "prlimit --data=390000000 " + test::program() +
                                " --log-level error recommend --threads 1 --user 7 --checkpoint " +
                                root_ + "/many";
  EXPECT_NE(test::run_command(recommend).status, 0);
  const Outcome lists = test::mpirun(5, recommend);
  ASSERT_EQ(lists.status, 0) << lists.output;
  EXPECT_NE(lists.output.find("\n  10  "), std::string::npos) << lists.output;
}

// Saves and evaluations that fall between two means.
TEST_F(Ranks, AveragedReplicasResumeBitEqualAndAreEvaluatedAsSaved) {
  const std::string options =
      "--dist.group=1 --dist.replicas=average --dist.average_every=7 --checkpoint.every=4"
      " --checkpoint.keep_last=9 --eval.every_steps=4 ";
  ASSERT_EQ(train(2, "whole", options + "--train.steps=12").status, 0);
  ASSERT_EQ(std::system(("cp -r " + root_ + "/whole " + root_ + "/parts").c_str()), 0);
  for (const char* step : {"08", "12"}) {
    const std::string saved = root_ + "/parts/checkpoints/step-0000000" + step;
    ASSERT_EQ(std::system(("rm -r " + saved).c_str()), 0);
  }
  test::write_file(root_ + "/parts/checkpoints/latest", "step-000000004\n");
  const Outcome resumed = train(2, "parts", options + "--train.steps=12 --run.resume=true");
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  ASSERT_NE(resumed.output.find("at step 4"), std::string::npos) << resumed.output;
  const auto bytes = [&](const std::string& run) {
    return test::tensors_of(root_ + "/" + run + "/checkpoints/step-000000012");
  };
  EXPECT_TRUE(bytes("whole") == bytes("parts"));
  EXPECT_EQ(figures("whole", "loss"), figures("parts", "loss"));
  EXPECT_EQ(figures("whole", "ndcg@10"), figures("parts", "ndcg@10"));

  const Outcome evaluated =
      run_program("eval --split validation --checkpoint " + root_ +
                  "/whole/checkpoints/step-000000004 --json " + root_ + "/figures.json");
  ASSERT_EQ(evaluated.status, 0) << evaluated.output;
  const nlohmann::json saved = nlohmann::json::parse(read_file(root_ + "/figures.json"));
  EXPECT_NEAR(saved[0].at("ndcg@10").get<double>(), figures("whole", "ndcg@10").front(), 1e-12);
}

// Neither a mean nor a save is near: the figure is still that of the rows' average, which another
// run saves at this step.
TEST_F(Ranks, AveragedReplicasAreEvaluatedAsTheirAverageAtAnyStep) {
  const std::string averaged =
      " --dist.group=1 --dist.replicas=average --dist.average_every=7 --checkpoint.every=99"
      " --checkpoint.keep_best=0 ";
  const auto check = [&](const std::string& task, const std::string& figure, auto&& train) {
    const std::string on = task + "-on", ended = task + "-ended";
    const Outcome trained = train(on, averaged + "--eval.every_steps=5 --train.steps=9");
    ASSERT_EQ(trained.status, 0) << trained.output;
    EXPECT_FALSE(std::filesystem::exists(root_ + "/" + on + "/checkpoints/step-000000005"));
    ASSERT_EQ(train(ended, averaged + "--train.steps=5").status, 0);
    const Outcome evaluated =
        run_program("eval --split validation --checkpoint " + root_ + "/" + ended +
                    "/checkpoints/step-000000005 --json " + root_ + "/figures.json");
    ASSERT_EQ(evaluated.status, 0) << evaluated.output;
    const nlohmann::json saved = nlohmann::json::parse(read_file(root_ + "/figures.json"));
    EXPECT_NEAR(saved[0].at(figure).get<double>(), figures(on, figure).front(), 1e-5) << task;
  };
  check("retrieval", "mrr",
        [&](const std::string& run, const std::string& more) { return train(2, run, more); });
  check("ranking", "ne", [&](const std::string& run, const std::string& more) {
    return test::mpirun(2, test::program() + " train --task=ranking --data.store=" + store_ +
                               " --run.dir=" + root_ + "/" + run +
                               " --train.threads=1 --train.peak_tflops=1 --train.batch=16"
                               " --train.epochs=50 --log.progress=none --log.tensorboard=false"
                               " --embedding.lr=0.01" +
                               more);
  });
}

TEST_F(Ranks, ShareAnEvaluationAndSpeakOnce) {
  ASSERT_EQ(train(1, "run", "--train.steps=4").status, 0);
  const std::string eval = test::program() + " --log-level error eval --checkpoint " + root_ +
                           "/run --popularity --untrained --threads 1 --json " + root_ + "/";
  const Outcome alone = test::run_command(eval + "alone.json");
  ASSERT_EQ(alone.status, 0) << alone.output;
  for (const int ranks : {2, 3}) {
    const Outcome shared = test::mpirun(ranks, eval + "shared.json");
    ASSERT_EQ(shared.status, 0) << shared.output;
    EXPECT_EQ(shared.output, alone.output);
    const nlohmann::json one = nlohmann::json::parse(read_file(root_ + "/alone.json"));
    const nlohmann::json many = nlohmann::json::parse(read_file(root_ + "/shared.json"));
    ASSERT_EQ(one.size(), many.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
      EXPECT_EQ(one[i].at("ranking"), many[i].at("ranking"));
      EXPECT_EQ(one[i].at("hr@10"), many[i].at("hr@10"));
      EXPECT_NEAR(one[i].at("mrr").get<double>(), many[i].at("mrr").get<double>(), 1e-12);
    }
  }
}

TEST_F(Ranks, RecommendWhatOneWould) {
  for (const char* dtype : {"f32", "bf16"}) {
    const std::string run = std::string("run-") + dtype;
    ASSERT_EQ(train(1, run, std::string("--train.steps=4 --train.dtype=") + dtype).status, 0);
    const std::string recommend = test::program() +
                                  " --log-level error recommend --threads 1 --checkpoint " + root_ +
                                  "/" + run;
    test::write_file(root_ + "/history", "1,10\n2,20\n");
    // The third has fewer candidates than ranks, the last as many entries as candidates.
    for (const char* more : {"--all --k 7", "--all --split test --seen keep", "--all --allow 3,1",
                             "--all --untrained-items --k 1000000"}) {
      const std::string out = root_ + "/" + dtype;
      const std::string asked = recommend + " " + more + " --out " + out;
      const Outcome alone = test::run_command(asked + "-alone.csv");
      ASSERT_EQ(alone.status, 0) << alone.output;
      const Outcome shared = test::mpirun(3, asked + "-shared.csv");
      ASSERT_EQ(shared.status, 0) << shared.output;
      EXPECT_EQ(shared.output, alone.output);
      EXPECT_EQ(read_file(out + "-shared.csv"), read_file(out + "-alone.csv")) << more;
    }
    const std::string by_hand = recommend + " --history " + root_ + "/history";
    EXPECT_EQ(test::mpirun(2, by_hand).output, test::run_command(by_hand).output);
  }
}

TEST_F(Ranks, StartedByOtherWordsAreNamed) {
  ASSERT_EQ(train(1, "run", "--train.steps=2").status, 0);
  const std::string program = test::program() + " --log-level error ";
  const auto named = [&](const std::string& first, const std::string& second,
                         const std::string& text) {
    const Outcome outcome = test::mpirun(1, program + first + " : -n 1 " + program + second);
    EXPECT_NE(outcome.status, 0);
    EXPECT_NE(outcome.output.find("rank 1 was started as `turbogr " + text), std::string::npos)
        << outcome.output;
  };
  const std::string recommend = "recommend --user 1 --checkpoint " + root_ + "/run";
  named(recommend + " --k 3", recommend + " --k 2", "--log-level error recommend --user 1");
  const std::string eval = "eval --checkpoint " + root_ + "/run";
  named(eval, eval + " --at 5", "--log-level error eval");
  named("train --data.store=" + root_ + "/store --train.steps=1 --run.dir=" + root_ + "/other",
        eval, "--log-level error eval");
}

TEST_F(Ranks, AreRefusedWhereOneProcessDoesAll) {
  for (const char* command : {"report run", "export --checkpoint run", "data stats store"}) {
    const Outcome refused =
        test::run_command("OMPI_COMM_WORLD_SIZE=2 " + test::program() + " " + std::string(command));
    EXPECT_EQ(refused.status, 1);
    EXPECT_NE(refused.output.find("is one process, and mpirun or srun has started 2 of it"),
              std::string::npos)
        << refused.output;
  }
}

TEST_F(Ranks, ATraceHasEveryRankAndADryRunAnyWorld) {
  const Outcome traced =
      train(2, "traced", "--train.steps=4 --train.schedule=exact_prefetch --run.trace=true");
  ASSERT_EQ(traced.status, 0) << traced.output;
  const nlohmann::json trace = nlohmann::json::parse(std::ifstream(root_ + "/traced/trace.json"));
  std::set<int> ranks;
  std::set<std::string> stages;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    ranks.insert(event.at("pid").get<int>());
    stages.insert(event.at("name").get<std::string>());
    EXPECT_GE(event.at("ts").get<double>(), -1e6);
    EXPECT_LT(event.at("ts").get<double>(), 1e9);
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 1}));
  for (const char* stage : {"draw negatives", "exchange ids", "fetch rows", "forward and backward",
                            "return row gradients", "update rows", "fetch changed rows",
                            "read batch", "find changed rows", "wait for dense gradients"}) {
    EXPECT_EQ(stages.count(stage), 1u) << stage;
  }
  const Outcome report = run_program("report " + root_ + "/traced");
  EXPECT_EQ(report.status, 0) << report.output;
  EXPECT_NE(report.output.find("3 steps of 2 ranks: compute"), std::string::npos) << report.output;
  const Outcome dry =
      run_program("train " + test::source_dir() + "/configs/demo.toml --data.store=" + store_ +
                  " --run.dry_run=true --dist.world=64 --dist.ranks_per_node=8");
  EXPECT_EQ(dry.status, 0) << dry.output;
  EXPECT_NE(dry.output.find("64 in 8 groups of 8"), std::string::npos) << dry.output;
  EXPECT_NE(dry.output.find("MiB a rank planned"), std::string::npos) << dry.output;
  EXPECT_EQ(dry.output.find("one group"), std::string::npos) << dry.output;
  const Outcome uneven =
      run_program("train " + test::source_dir() + "/configs/demo.toml --data.store=" + store_ +
                  " --run.dry_run=true --dist.world=10 --dist.ranks_per_node=4");
  EXPECT_EQ(uneven.status, 0) << uneven.output;
  EXPECT_NE(uneven.output.find("10 in 1 groups of 10"), std::string::npos) << uneven.output;
  EXPECT_NE(uneven.output.find("machines have 2 to 4 ranks"), std::string::npos) << uneven.output;
  EXPECT_NE(train(1, "x", "--dist.world=4").output.find("is for dry runs"), std::string::npos);
}

TEST_F(Ranks, AKilledRankEndsAllAndTheRestResumes) {
  // Once there is a checkpoint, the newest of the processes that name this run folder: a rank.
  const Outcome killed = test::run_command(
      "(while [ ! -e " + root_ + "/killed/checkpoints/latest ]; do sleep 0.1; done; sleep 0.3; " +
      "kill -9 $(pgrep -f -n 'run.dir=" + root_ + "/[k]illed')) & " +
      "timeout -k 5 100 mpirun --allow-run-as-root --oversubscribe --bind-to none -n 3 " +
      command("killed", "--checkpoint.every=5 --log.every=5 --train.steps=100000"));
  EXPECT_NE(killed.status, 0);
  EXPECT_NE(killed.output.find("rank"), std::string::npos) << killed.output;
  const Outcome resumed =
      train(2, "killed", "--run.resume=true --train.steps=1 --checkpoint.every=5");
  EXPECT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_NE(resumed.output.find("resumed from"), std::string::npos) << resumed.output;
}

TEST_F(Ranks, SrunWithoutPmiIsToldSo) {
  const Outcome alone = test::run_command("SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 " +
                                          command("srun", "--train.steps=2"));
  EXPECT_NE(alone.status, 0);
  EXPECT_NE(alone.output.find("srun has started 2 tasks and MPI finds one"), std::string::npos)
      << alone.output;
}

TEST_F(Ranks, AFaultOnOneRankNamesIt) {
  const Outcome bad = train(2, "bad", "--train.steps=3 --dist.group=3");
  EXPECT_NE(bad.status, 0);
  EXPECT_NE(bad.output.find("turbogr: rank"), std::string::npos) << bad.output;
  EXPECT_NE(bad.output.find("2 ranks cannot be cut into groups of 3"), std::string::npos)
      << bad.output;
  const Outcome alone = train(1, "alone", "--train.steps=3 --dist.group=2");
  EXPECT_NE(alone.output.find("dist.group = 2 is for more ranks"), std::string::npos)
      << alone.output;
}

TEST_F(Ranks, ARankWithAnotherConfigSaysSo) {
  const Outcome bad = test::mpirun(1, command("bad", "--train.steps=3") + " : -n 1 " +
                                          command("bad", "--train.steps=3 --run.seed=7"));
  EXPECT_NE(bad.status, 0);
  EXPECT_NE(bad.output.find("another config than rank 0 (run.seed is 7, was 1 there)"),
            std::string::npos)
      << bad.output;
}

}  // namespace
}  // namespace turbogr
