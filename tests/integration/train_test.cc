// The real program from a synthetic world to recommendations: training, resuming, evaluating.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/training.h"

namespace turbogr {
namespace {

using test::contents_of;
using test::Outcome;
using test::run_program;
using test::Training;

TEST_F(Training, ResumesBitEqualToNeverHavingStopped) {
  const std::pair<std::string, std::string> formats[] = {
      {"f32", "f32"}, {"bf16", "bf16"}, {"fp8", "bf16 --train.products=fp8"}};
  for (const auto& [name, dtype] : formats) {
    const std::string options = " --train.dtype=" + dtype + " --train.epochs=4";
    const Outcome whole = train("whole-" + name, options + " --train.steps=20");
    ASSERT_EQ(whole.status, 0) << whole.output;
    // A decaying rate depends on the total, so the first part is stopped by steps alone.
    const std::string constant = " --optim.schedule=constant";
    ASSERT_EQ(train("plain-" + name, options + " --train.steps=20" + constant).status, 0);
    ASSERT_EQ(train("parts-" + name, options + " --train.steps=7" + constant).status, 0);
    const Outcome resumed =
        train("parts-" + name, options + " --train.steps=20 --run.resume=true" + constant);
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_EQ(model_bytes("plain-" + name), model_bytes("parts-" + name)) << name;
    EXPECT_NE(model_bytes("plain-" + name), model_bytes("whole-" + name)) << "the schedule matters";
  }
}

// Saved as they are, so that a resume goes on from the same bits; evaluated and served, too.
TEST_F(Training, TablesInHalfTheMemoryAreSavedResumedAndServed) {
  const std::string options = " --optim.schedule=constant --embedding.dtype=";
  for (const std::string dtype : {"bf16", "f16"}) {
    ASSERT_EQ(train("whole-" + dtype, options + dtype + " --train.steps=12").status, 0);
    ASSERT_EQ(train("parts-" + dtype, options + dtype + " --train.steps=5").status, 0);
    const Outcome resumed =
        train("parts-" + dtype, options + dtype + " --train.steps=12 --run.resume=true");
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_EQ(model_bytes("whole-" + dtype), model_bytes("parts-" + dtype)) << dtype;
    const Outcome lists =
        run_program("recommend --user 0 --checkpoint " + root_ + "/whole-" + dtype);
    EXPECT_EQ(lists.status, 0) << lists.output;
  }
  EXPECT_NE(model_bytes("whole-bf16"), model_bytes("whole-f16"));
}

TEST_F(Training, LogsTheSameLossesAfterAResume) {
  const std::string options = " --optim.schedule=constant --checkpoint.every=3 --train.steps=";
  ASSERT_EQ(train("whole", options + "20").status, 0);
  const auto losses = [&](const std::string& run) {
    std::map<std::int64_t, double> by_step;
    std::ifstream lines(root_ + "/" + run + "/metrics.jsonl");
    for (std::string line; std::getline(lines, line);) {
      const auto row = nlohmann::json::parse(line);
      if (row.contains("loss"))
        by_step[row["step"].get<std::int64_t>()] = row["loss"].get<double>();
    }
    return by_step;
  };
  const auto whole = losses("whole");
  ASSERT_EQ(whole.size(), 4u);
  // Stopped at its end, and killed some steps after a save: both between two lines.
  ASSERT_EQ(train("stopped", options + "7").status, 0);
  ASSERT_EQ(train("killed", options + "9 --checkpoint.keep_last=9").status, 0);
  std::filesystem::remove_all(root_ + "/killed/checkpoints/step-000000009");
  test::write_file(root_ + "/killed/checkpoints/latest", "step-000000006\n");
  for (const std::string run : {"stopped", "killed"}) {
    const Outcome resumed = train(run, options + "20 --run.resume=true");
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    auto found = losses(run);
    found.erase(7);  // the last line of the part that was stopped
    EXPECT_EQ(found, whole) << run;
  }
}

TEST_F(Training, APrefixAndTargetsTrainResumeAndRecommend) {
  for (const std::string kind : {"hstu", "fuxi"}) {
    const std::string options = " --model.prefix=2 --model.targets=3 --model.kind=" + kind +
                                " --train.accumulate=2 --optim.schedule=constant";
    const Outcome whole = train("whole-" + kind, options + " --train.steps=8");
    ASSERT_EQ(whole.status, 0) << whole.output;
    ASSERT_EQ(train("parts-" + kind, options + " --train.steps=3 --train.threads=1").status, 0);
    ASSERT_EQ(train("parts-" + kind, options + " --train.steps=8 --run.resume=true").status, 0);
    EXPECT_EQ(model_bytes("whole-" + kind), model_bytes("parts-" + kind)) << kind;
    const Outcome other =
        train("parts-" + kind, " --train.steps=9 --run.resume=true --model.kind=" + kind);
    EXPECT_NE(other.output.find("model.prefix is 0, was 2"), std::string::npos) << other.output;
    const std::string checkpoint = " --checkpoint " + root_ + "/whole-" + kind;
    EXPECT_EQ(run_program("recommend --user 1" + checkpoint).status, 0);
    EXPECT_EQ(run_program("eval" + checkpoint).status, 0);
  }
}

// The last event of a sequence of one is all of it.
TEST_F(Training, SequencesOfOneEventLearnTheSameWithAndWithoutATarget) {
  const std::string one = "--data.max_length=1 --train.steps=4 --model.targets=";
  ASSERT_EQ(train("every", one + "0").status, 0);
  ASSERT_EQ(train("target", one + "1").status, 0);
  EXPECT_EQ(model_bytes("every"), model_bytes("target"));
}

TEST_F(Training, PlansTheStepsItTakes) {
  const Outcome run = train("planned", "--train.epochs=5");
  ASSERT_EQ(run.status, 0) << run.output;
  const std::size_t end = run.output.find(" in all");
  const std::size_t begin = run.output.rfind(' ', end - 1) + 1;
  const std::string steps = run.output.substr(begin, end - begin);
  EXPECT_NE(run.output.find("finished at step " + steps + ";"), std::string::npos) << run.output;
}

TEST_F(Training, ADryRunTakesNoMemoryOfWhatItPlans) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "a sanitizer has its own idea of memory";
#endif
  const Outcome planned =
      train("run", "--run.dry_run=true --train.tokens=1000 --model.width=16384 --model.layers=100");
  EXPECT_EQ(planned.status, 0) << planned.output;
  const std::size_t at = planned.output.find("memory   ");
  ASSERT_NE(at, std::string::npos) << planned.output;
  const double planned_mib = std::stod(planned.output.substr(at + 9));
  EXPECT_GT(planned_mib, 4000) << planned.output;
  struct rusage used = {};
  ASSERT_EQ(::getrusage(RUSAGE_CHILDREN, &used), 0);
  EXPECT_LT(static_cast<double>(used.ru_maxrss) / 1024, planned_mib / 10);  // the largest child
  EXPECT_FALSE(std::filesystem::exists(root_ + "/run"));
}

TEST_F(Training, ARunKilledBeforeItsFirstCheckpointBeginsAgain) {
  ASSERT_EQ(train("early", "--train.steps=5").status, 0);
  const std::string whole = model_bytes("early");
  forget_checkpoints("early");
  const Outcome again = train("early", "--train.steps=5 --run.resume=true");
  ASSERT_EQ(again.status, 0) << again.output;
  EXPECT_NE(again.output.find("starting from the beginning"), std::string::npos) << again.output;
  EXPECT_EQ(model_bytes("early"), whole);
  std::size_t lines = 0;
  for (const char c : contents_of(root_ + "/early/metrics.jsonl")) lines += c == '\n' ? 1 : 0;
  EXPECT_EQ(lines, 3u) << "one of training, two of evaluation";
}

TEST_F(Training, GivesTheSameBitsForAnyNumberOfThreads) {
  ASSERT_EQ(train("one", "--train.steps=6 --train.threads=1").status, 0);
  ASSERT_EQ(train("three", "--train.steps=6 --train.threads=3").status, 0);
  EXPECT_EQ(model_bytes("one"), model_bytes("three"));
}

TEST_F(Training, AccumulatingPartsIsCloseToOneBatch) {
  const std::string options =
      "--train.steps=5 --model.dropout=0 --negatives.set=token --train.tokens=0 "
      "--train.batch=8 --log.every=1 ";
  ASSERT_EQ(train("once", options).status, 0);
  const Outcome parts = train("parts", options + "--train.accumulate=2");
  ASSERT_EQ(parts.status, 0) << parts.output;
  std::ifstream a(root_ + "/once/metrics.jsonl"), b(root_ + "/parts/metrics.jsonl");
  for (int line = 0; line < 5; ++line) {
    std::string x, y;
    ASSERT_TRUE(std::getline(a, x) && std::getline(b, y));
    EXPECT_NEAR(nlohmann::json::parse(x)["loss"].get<double>(),
                nlohmann::json::parse(y)["loss"].get<double>(), 2e-4)
        << line;
  }
}

TEST_F(Training, LeavesFiguresEvaluatesAndRecommends) {
  const Outcome trained = train("run", "--train.epochs=2");
  ASSERT_EQ(trained.status, 0) << trained.output;
  std::ifstream lines(root_ + "/run/metrics.jsonl");
  bool training = false, validation = false, tested = false;
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.contains("split")) {
      for (const char* key : {"hr@10", "ndcg@10", "hr@50", "hr@200", "mrr"})
        EXPECT_TRUE(row.contains(key)) << key;
      validation = validation || row["split"] == "validation";
      tested = tested || row["split"] == "test";
    } else {
      training = true;
      for (const char* key : {"step", "epoch", "loss", "lr", "grad_norm", "tokens_per_s",
                              "mfu_causal", "mfu_paper"}) {
        EXPECT_TRUE(row.contains(key)) << key;
      }
    }
  }
  EXPECT_TRUE(training && validation && tested);

  const std::string checkpoint = " --checkpoint " + root_ + "/run";
  const Outcome evaluated = run_program("eval --popularity --untrained" + checkpoint);
  EXPECT_EQ(evaluated.status, 0) << evaluated.output;
  EXPECT_NE(evaluated.output.find("popularity"), std::string::npos);
  const Outcome one = run_program("recommend --user 1 --k 3" + checkpoint);
  EXPECT_EQ(one.status, 0) << one.output;
  EXPECT_NE(one.output.find("user 1, recently"), std::string::npos);
  const Outcome all = run_program("recommend --all --k 2 --out " + root_ + "/all.csv" + checkpoint);
  EXPECT_EQ(all.status, 0) << all.output;
  EXPECT_EQ(contents_of(root_ + "/all.csv").rfind("user,place,item,score\n", 0), 0u);
  const Outcome exported =
      run_program("export --users --out " + root_ + "/v.safetensors" + checkpoint);
  EXPECT_EQ(exported.status, 0) << exported.output;
  EXPECT_EQ(run_program("report " + root_ + "/run").status, 0);
}

// A step of one rank is more than its forward and backward pass.
TEST_F(Training, ATraceOfOneRankSharesOutItsStages) {
  ASSERT_EQ(train("run", "--train.steps=8 --run.trace=true").status, 0);
  const Outcome report = run_program("report " + root_ + "/run");
  ASSERT_EQ(report.status, 0) << report.output;
  EXPECT_NE(report.output.find("7 steps of 1 ranks: compute "), std::string::npos) << report.output;
  const auto share = [&](const std::string& stage) {
    const std::size_t line = report.output.find("\n  " + stage + "  ");
    if (line == std::string::npos) return -1.0;
    const std::size_t end = report.output.find('%', line);
    return std::stod(report.output.substr(report.output.rfind(' ', end), end));
  };
  double sum = 0;
  for (const char* stage : {"read batch", "draw negatives", "fetch rows", "forward and backward",
                            "update dense weights", "update rows"}) {
    EXPECT_GE(share(stage), 0) << stage << "\n" << report.output;
    EXPECT_LT(share(stage), 100) << stage << "\n" << report.output;
    sum += share(stage);
  }
  EXPECT_GT(sum, 50) << report.output;
  EXPECT_LT(sum, 100.5) << report.output;
}

TEST_F(Training, LearnsFromActionSignals) {
  ASSERT_EQ(train("plain", "--train.steps=5").status, 0);
  const Outcome trained = train("actions", "--train.steps=5 --model.actions=true");
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_NE(model_bytes("plain"), model_bytes("actions"));
  EXPECT_NE(model_bytes("actions").find("\"actions\""), std::string::npos);
  EXPECT_EQ(run_program("recommend --user 1 --checkpoint " + root_ + "/actions").status, 0);
}

TEST_F(Training, KeepsTheBestCheckpointWhereverItIsEvaluated) {
  for (const std::string when : {"--eval.every=0", "--eval.every_steps=2"}) {
    const std::string run = "best" + when;
    const Outcome trained =
        train(run, "--train.steps=4 --checkpoint.keep_best=1 --checkpoint.keep_last=9 " + when);
    ASSERT_EQ(trained.status, 0) << trained.output;
    // The first validation line with the highest score names the step.
    std::ifstream lines(root_ + "/" + run + "/metrics.jsonl");
    double highest = -1;
    std::int64_t step = 0;
    for (std::string line; std::getline(lines, line);) {
      const auto row = nlohmann::json::parse(line);
      if (!row.contains("split") || row["split"] != "validation") continue;
      if (row["ndcg@10"].get<double>() <= highest) continue;
      highest = row["ndcg@10"].get<double>();
      step = row["step"].get<std::int64_t>();
    }
    const std::string checkpoints = root_ + "/" + run + "/checkpoints";
    const std::string best = contents_of(checkpoints + "/best");
    EXPECT_EQ(best.rfind(fmt::format("step-{:09}", step), 0), 0u) << best << " " << step;
    const Outcome evaluated = run_program("eval --checkpoint " + checkpoints + "/best");
    EXPECT_EQ(evaluated.status, 0) << evaluated.output;
    EXPECT_NE(evaluated.output.find(fmt::format("step {}", step)), std::string::npos)
        << evaluated.output;
  }
}

TEST_F(Training, SaysWhatIsWrong) {
  const auto fails_with = [&](const Outcome& outcome, const std::string& text) {
    EXPECT_NE(outcome.status, 0);
    EXPECT_NE(outcome.output.find(text), std::string::npos) << outcome.output;
  };
  std::filesystem::create_directories(root_ + "/full/x");
  const Outcome full = train("full", "--train.steps=1");
  fails_with(full, "is not empty; go on with --run.resume=true");
  EXPECT_EQ(full.output.find("planned"), std::string::npos) << full.output;  // before the memory
  fails_with(train("gpu", "--train.device=cuda"), "no CUDA");
  fails_with(train("none", "--run.resume=true --train.steps=1"), "checkpoint");
  fails_with(run_program("recommend --checkpoint " + root_ + "/nowhere --user 1"),
             "no checkpoint at");
  ASSERT_EQ(train("run", "--train.steps=2").status, 0);
  fails_with(train("run", "--train.steps=4 --run.resume=true --model.layers=3"),
             "model.layers is 3, was 2");
  fails_with(run_program("recommend --user nobody --checkpoint " + root_ + "/run"),
             "no user 'nobody'");
  fails_with(run_program("recommend --checkpoint " + root_ + "/run"), "recommend for whom?");
}

TEST_F(Training, RefusesBeforeTrainingWhatWouldFailAfterIt) {
  const auto refused = [&](const std::string& more, const std::string& text) {
    const Outcome outcome = train("refused", "--train.steps=1 " + more);
    EXPECT_EQ(outcome.status, 1) << more;
    EXPECT_NE(outcome.output.find(text), std::string::npos) << outcome.output;
    EXPECT_FALSE(std::filesystem::exists(root_ + "/refused/config.toml")) << more;
  };
  refused(
      "--data.holdout=time:9000000000000000 --checkpoint.keep_best=0",
      "no user with enough events for the test split of data.holdout = \"time:9000000000000000\""
      "; wanted: a user with 3 events, one of the split and one before it among them");
  // A slip of many: the store in the config's place.
  const Outcome store = run_program("train " + store_);
  EXPECT_EQ(store.status, 1);
  EXPECT_NE(
      store.output.find("is a store, and a config file goes there; write --data.store=" + store_),
      std::string::npos)
      << store.output;
  refused("--model.kind=fuxi --model.ffn=1e30", "is the most");
  refused("--negatives.count=1000000000000000000", "negatives.count");
  refused("--run.start_from=" + root_ + "/nowhere", "no checkpoint at");
  const std::string gives = "and an evaluation gives hr@5, ndcg@5, mrr; choose one of these";
  refused("--train.patience=2 --eval.every=1 --eval.at=[5]", gives);
  refused("--checkpoint.keep_best=1 --eval.at=[5]", "eval.metric = \"ndcg@10\"");
  refused("--checkpoint.keep_best=1 --eval.at=[5] --eval.metric=auc", gives);
}

TEST_F(Training, TheLastCheckpointHasAScoreAndKeepsItThroughAResume) {
  ASSERT_EQ(train("run", "--train.steps=6 --checkpoint.keep_best=1").status, 0);
  const auto score = [&] {
    return nlohmann::json::parse(
        contents_of(root_ + "/run/checkpoints/step-000000006/manifest.json"))["score"];
  };
  EXPECT_TRUE(score().is_number());
  EXPECT_EQ(contents_of(root_ + "/run/checkpoints/best"), "step-000000006\n");
  const std::string config = contents_of(root_ + "/run/config.toml");
  const std::string metrics = contents_of(root_ + "/run/metrics.jsonl");
  const Outcome seed = train("run", "--train.steps=8 --run.resume=true --run.seed=9");
  EXPECT_NE(seed.output.find("run.seed is 9, was 1"), std::string::npos) << seed.output;
  EXPECT_EQ(contents_of(root_ + "/run/config.toml"), config);  // a refused run changes nothing
  // Nothing is left to do: the same figures again, written once.
  ASSERT_EQ(train("run", "--train.steps=6 --run.resume=true --checkpoint.keep_best=0").status, 0);
  EXPECT_TRUE(score().is_number());
  EXPECT_EQ(contents_of(root_ + "/run/metrics.jsonl"), metrics);
}

TEST_F(Training, RecommendAndEvalSayWhatIsWrongWithWhatTheyAreGiven) {
  ASSERT_EQ(train("run", "--train.steps=1").status, 0);
  const std::string recommend = "recommend --checkpoint " + root_ + "/run ";
  const auto history = [&](const std::string& text) {
    test::write_file(folder_ / "history", text);
    return test::run_command(test::program() + " --log-level error " + recommend + "--history " +
                             root_ + "/history");
  };
  const Outcome good = history("1,10\n2,20\n");
  EXPECT_EQ(good.status, 0) << good.output;
  EXPECT_EQ(history("\xef\xbb\xbf"
                    "1,10\r\n\r\n2,20\r\n")
                .output,
            good.output);
  for (const auto& [text, part] : {std::pair{"1,10\n2\n", ":2: '2' has no time, unlike"},
                                   {"1,10\n2,9\n", "oldest event first"},
                                   {"1,10,11\n", "time '10,11' is not"},
                                   {"\x1b[2J\n", "no item '?[2J'"},
                                   {"", "history is empty"}}) {
    const Outcome outcome = history(text);
    EXPECT_EQ(outcome.status, 1) << text;
    EXPECT_NE(outcome.output.find(part), std::string::npos) << outcome.output;
  }
  for (const auto& [arguments, part] : {std::pair{recommend + "--history " + root_, "cannot read"},
                                        {recommend + "--users " + root_, "cannot read"}}) {
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.status, 1) << arguments;
    EXPECT_NE(outcome.output.find(part), std::string::npos) << outcome.output;
  }
  test::write_file(folder_ / "history", "1,10\n2,20\n");
  const Outcome none = run_program(
      recommend + "--seen drop --allow 1,2 --untrained-items --history " + root_ + "/history");
  EXPECT_EQ(none.status, 0) << none.output;
  EXPECT_NE(none.output.find("1 users have no list"), std::string::npos) << none.output;
  const Outcome many = run_program(recommend + "--user 1 --k 100000");
  EXPECT_EQ(many.status, 0);
  EXPECT_NE(many.output.find("--k 100000 is more than"), std::string::npos) << many.output;
}

TEST_F(Training, ALostOrUnreadableCheckpointIsNotPassedOverInSilence) {
  ASSERT_EQ(train("run", "--train.steps=4 --checkpoint.every=2 --checkpoint.keep_best=1").status,
            0);
  const std::string checkpoints = root_ + "/run/checkpoints/";
  const std::string best = contents_of(checkpoints + "best");
  const std::string recommend = "recommend --user 1 --checkpoint " + root_ + "/run";
  for (const std::string said : {"/etc", "", "../../x"}) {
    test::write_file(checkpoints + "best", said);
    const Outcome warned = run_program(recommend);
    EXPECT_EQ(warned.status, 0) << warned.output;
    EXPECT_NE(warned.output.find("best' names no checkpoint"), std::string::npos) << warned.output;
  }
  test::write_file(checkpoints + "best", best);
  std::filesystem::remove_all(checkpoints + "step-000000004");
  const Outcome refused = train("run", "--train.steps=6 --run.resume=true");
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.output.find("latest' names 'step-000000004', and there is no such checkpoint"),
            std::string::npos)
      << refused.output;
  const Outcome resumed =
      train("run", "--train.steps=6 --run.resume=true --checkpoint.fall_back=true");
  EXPECT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_NE(resumed.output.find("Going on from the newest good one"), std::string::npos)
      << resumed.output;
}

TEST_F(Training, AnEmptyOptionIsNoMissingOne) {
  ASSERT_EQ(train("run", "--train.steps=1").status, 0);
  for (const char* option : {"--allow", "--allow-file", "--block", "--seen", "--out"}) {
    const Outcome outcome =
        run_program("recommend --user 1 --checkpoint " + root_ + "/run " + option + " \"\"");
    EXPECT_NE(outcome.status, 0) << option;
    EXPECT_NE(outcome.output.find("is empty; give a value, or leave the option out"),
              std::string::npos)
        << outcome.output;
  }
}

TEST_F(Training, AFileSizeLimitEndsInWords) {
  ASSERT_EQ(train("run", "--train.steps=1").status, 0);
  for (const std::string& arguments :
       {"recommend --all --untrained-items --k 50 --out " + root_ + "/lists.csv",
        "export --out " + root_ + "/vectors.safetensors"}) {
    const Outcome outcome = test::run_command("ulimit -f 1; " + test::program() + " " + arguments +
                                              " --checkpoint " + root_ + "/run");
    EXPECT_EQ(outcome.status, 1) << outcome.output;
    EXPECT_NE(outcome.output.find("cannot write"), std::string::npos) << outcome.output;
  }
  EXPECT_FALSE(std::filesystem::exists(root_ + "/lists.csv.partial"));
}

TEST_F(Training, ANewRunKeepsTheRowsOfItemsItKnows) {
  ASSERT_EQ(train("run", "--train.steps=4").status, 0);
  const std::string larger = root_ + "/larger";
  ASSERT_EQ(
      run_program(
          "data synth --like kuairand27k --users 90 --items 120 --mean-length 30 --max-length 60 "
          "--seed 3 --threads 1 --out " +
          larger)
          .status,
      0);
  store_ = larger;
  const std::string from = contents_of(root_ + "/run/checkpoints/latest");
  for (const std::string& path :
       {root_ + "/run", root_ + "/run/checkpoints/" + from.substr(0, from.find('\n'))}) {
    std::filesystem::remove_all(root_ + "/next");
    const Outcome started = train("next", "--train.steps=1 --run.start_from=" + path);
    EXPECT_EQ(started.status, 0) << started.output;
    EXPECT_NE(started.output.find("items known, the others new"), std::string::npos)
        << started.output;
  }
}

}  // namespace
}  // namespace turbogr
