// What happens to a run around it: folders that vanish, readers that come at a bad moment, signals.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/training.h"
#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/checkpoint/checkpoint_manifest.h"

namespace turbogr {
namespace {

using test::contents_of;
using test::has;
using test::Outcome;
using test::run_command;

class RunFaults : public test::Training {
 protected:
  // Changes a field of a checkpoint's state and makes every checksum right again.
  void forge_state(const std::string& run, std::int64_t step, const char* field,
                   const nlohmann::json& value) const {
    const std::string folder =
        root_ + "/" + run + "/checkpoints/" + checkpoint::checkpoint_name(step);
    nlohmann::json state = nlohmann::json::parse(contents_of(folder + "/state.json"));
    state[field] = value;
    test::write_file(folder + "/state.json", state.dump());
    nlohmann::json manifest = nlohmann::json::parse(contents_of(folder + "/manifest.json"));
    manifest["files"]["state.json"] = checkpoint::sum_text(state.dump());
    manifest["crc32c"] = checkpoint::manifest_sum(manifest);
    test::write_file(folder + "/manifest.json", manifest.dump());
  }

  // Trains on and on while `meanwhile`, shell commands, begin when a checkpoint is there.
  Outcome disturb(const std::string& run, const std::string& meanwhile,
                  const std::string& more = "") const {
    return run_command("(for i in $(seq 1 1000); do [ -e " + root_ + "/" + run +
                       "/checkpoints/latest ] && break; sleep 0.05; done; " + meanwhile +
                       ") & timeout -k 5 100 " + test::program() + " " +
                       arguments(run,
                                 "--train.steps=1000000 --train.epochs=0 --checkpoint.every=5"
                                 " --log.progress=none " +
                                     more));
  }
};

TEST_F(RunFaults, AClosedTerminalOrOutputSavesAndStops) {
  const auto ended_well = [&](const std::string& run, const Outcome& ended,
                              const std::string& why) {
    const std::size_t at = ended.output.find("stopped at step ");
    ASSERT_NE(at, std::string::npos) << ended.output;
    const std::string step =
        ended.output.substr(at + 16, ended.output.find(' ', at + 16) - at - 16);
    EXPECT_NE(ended.output.find(step + " (" + why), std::string::npos) << ended.output;
    const Outcome resumed = train(run, "--train.steps=1 --run.resume=true");
    EXPECT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_NE(resumed.output.find("at step " + step), std::string::npos) << resumed.output;
  };
  const Outcome hung_up =
      disturb("terminal", "kill -HUP $(pgrep -n -f 'run.dir=" + root_ + "/[t]erminal')");
  EXPECT_EQ(hung_up.status, 0) << hung_up.output;
  ended_well("terminal", hung_up, "SIGHUP");

  // The plan is read, the figures of evaluations find nobody.
  const std::string errors = root_ + "/errors";
  const Outcome closed = run_command(
      "{ timeout -k 5 100 " + test::program() + " " +
      arguments("pipe", "--train.steps=1000000 --train.epochs=0 --eval.every_steps=3") + " 2> " +
      errors + "; echo status $? >> " + errors + "; } | head -n 1; cat " + errors);
  EXPECT_NE(closed.output.find("status 1"), std::string::npos) << closed.output;
  EXPECT_NE(closed.output.find("cannot write to standard output"), std::string::npos)
      << closed.output;
  ended_well("pipe", closed, "standard output was closed");
}

// Whatever is the first not to be had: threads, tensors, oneDNN's code, a checkpoint's header.
TEST_F(RunFaults, ALimitOfTheAddressSpaceEndsInWords) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "a sanitizer's own memory is past any limit";
#endif
  bool refused = false;
  for (int mib = 60; mib <= 116; mib += 4) {
    std::filesystem::remove_all(root_ + "/limited");
    const Outcome ended = test::run_program(arguments("limited", "--train.steps=2"),
                                            "ulimit -v " + std::to_string(mib * 1024) + ";");
    EXPECT_LE(ended.status, 1) << mib << " MiB: " << ended.output;
    if (ended.status == 0) continue;
    refused = true;
    EXPECT_NE(ended.output.find("turbogr: "), std::string::npos) << mib << " MiB: " << ended.output;
  }
  EXPECT_TRUE(refused);
}

// Likewise of the other commands that take memory.
TEST_F(RunFaults, ALimitOfTheAddressSpaceEndsEveryCommandInWords) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "a sanitizer's own memory is past any limit";
#endif
  ASSERT_EQ(train("run", "--train.steps=2").status, 0);
  const Outcome ranker = test::run_program(
      "train --task=ranking --data.store=" + store_ + " --run.dir=" + root_ +
      "/ranker --train.steps=1 --train.threads=2 --train.peak_tflops=1 --log.progress=none");
  ASSERT_EQ(ranker.status, 0) << ranker.output;
  test::write_file(root_ + "/log.csv", "user,item,timestamp\n1,2,3\n1,3,4\n1,4,5\n1,5,6\n");
  const std::vector<std::string> commands = {
      "eval --threads 2 --checkpoint " + root_ + "/run",
      "eval --threads 2 --checkpoint " + root_ + "/ranker",
      "recommend --all --threads 2 --checkpoint " + root_ + "/run --out " + root_ + "/lists.csv",
      "export --threads 2 --checkpoint " + root_ + "/run --out " + root_ + "/all.safetensors",
      "rank --user 1 --items 2,3 --threads 2 --checkpoint " + root_ + "/ranker",
      "data prepare " + root_ + "/log.csv --memory 64MB --threads 2 --overwrite --out " + root_ +
          "/prepared",
      "tune --trials 1 --vary lr --train.epochs=1 --train.threads=2 --model.width=16 "
      "--train.peak_tflops=1 --data.store=" +
          store_ + " --out " + root_ + "/search"};
  for (const std::string& command : commands) {
    int refused = 0;
    for (int mib = 58; mib <= 118; mib += 15) {
      const Outcome ended =
          test::run_program(command, "ulimit -v " + std::to_string(mib * 1024) + ";");
      EXPECT_LE(ended.status, 1) << mib << " MiB: " << command << '\n' << ended.output;
      if (ended.status == 0) continue;
      ++refused;
      EXPECT_TRUE(has(ended, "turbogr: ")) << mib << " MiB: " << command << '\n' << ended.output;
    }
    EXPECT_GT(refused, 0) << command;
    const Outcome unlimited = test::run_program(command);
    EXPECT_EQ(unlimited.status, 0) << unlimited.output;
  }
}

TEST_F(RunFaults, AStoreThatIsCutIsNamed) {
  const Outcome cut = disturb("run", "truncate -s 0 " + store_ + "/items.bin");
  EXPECT_EQ(cut.status, 1) << cut.output;
  EXPECT_NE(cut.output.find("store/items.bin' was cut short while it was in use"),
            std::string::npos)
      << cut.output;
}

TEST_F(RunFaults, ARunFolderThatIsReplacedIsLeftAlone) {
  const std::string run = root_ + "/run";
  const Outcome ended = disturb("run", "mv " + run + " " + root_ + "/moved; mkdir " + run);
  EXPECT_EQ(ended.status, 1) << ended.output;
  EXPECT_NE(ended.output.find("no longer the folder this run began in"), std::string::npos)
      << ended.output;
  EXPECT_TRUE(std::filesystem::is_empty(run));
  std::filesystem::remove(run);
  std::filesystem::rename(root_ + "/moved", run);
  const Outcome resumed = train("run", "--train.steps=1 --run.resume=true");
  EXPECT_EQ(resumed.status, 0) << resumed.output;
}

TEST_F(RunFaults, CheckpointsThatAreGoneAreNotTakenForNoneYet) {
  ASSERT_EQ(train("run", "--train.steps=5").status, 0);
  EXPECT_FALSE(std::filesystem::exists(root_ + "/run/checkpoints/none_yet"));
  const std::string metrics = contents_of(root_ + "/run/metrics.jsonl");
  std::filesystem::remove_all(root_ + "/run/checkpoints");
  const Outcome refused = train("run", "--train.steps=5 --run.resume=true");
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.output.find("--run.start_over=true begins at step 0"), std::string::npos)
      << refused.output;
  EXPECT_EQ(contents_of(root_ + "/run/metrics.jsonl"), metrics);
  const Outcome again = train("run", "--train.steps=5 --run.resume=true --run.start_over=true");
  EXPECT_EQ(again.status, 0) << again.output;
  EXPECT_EQ(contents_of(root_ + "/run/config.toml").find("start_over = true"), std::string::npos);
  const Outcome alone = train("other", "--train.steps=5 --run.start_over=true");
  EXPECT_NE(alone.output.find("run.start_over = true is for run.resume = true"), std::string::npos)
      << alone.output;
}

TEST_F(RunFaults, AForgedStateIsRefusedInWords) {
  ASSERT_EQ(train("run", "--train.steps=2").status, 0);
  const nlohmann::json good =
      nlohmann::json::parse(contents_of(root_ + "/run/checkpoints/step-000000002/state.json"));
  for (const char* field : {"loader", "epoch", "window", "skipped_steps"}) {
    forge_state("run", 2, field, {"x"});
    const Outcome refused = train("run", "--train.steps=3 --run.resume=true");
    EXPECT_EQ(refused.status, 1) << refused.output;
    EXPECT_NE(refused.output.find("does not say where the run stood"), std::string::npos)
        << refused.output;
    EXPECT_EQ(refused.output.find("json.exception"), std::string::npos) << refused.output;
    forge_state("run", 2, field, good.at(field));
  }
  // Numbers of the right kind that no run can have reached.
  nlohmann::json before_the_first = nlohmann::json::parse(good.at("loader").get<std::string>());
  before_the_first["window"] = -1;
  nlohmann::json window = good.at("window");
  window["tokens"] = -5;
  const std::vector<std::pair<const char*, nlohmann::json>> impossible = {
      {"epoch", -1},         {"epoch", 1e300},
      {"skipped_steps", -3}, {"early_stopping", {{"since_best", -9}}},
      {"window", window},    {"loader", before_the_first.dump()}};
  for (const auto& [field, value] : impossible) {
    forge_state("run", 2, field, value);
    const Outcome refused = train("run", "--train.steps=3 --run.resume=true");
    EXPECT_EQ(refused.status, 1) << field << ": " << refused.output;
    EXPECT_TRUE(has(refused, "does not say where the run stood") ||
                has(refused, "a position at window -1"))
        << field << ": " << refused.output;
    forge_state("run", 2, field, good.at(field));
  }
}

TEST_F(RunFaults, LostFiguresAreSaidByResumeAndReport) {
  const std::string run = root_ + "/run", metrics = run + "/metrics.jsonl";
  ASSERT_EQ(train("run", "--train.steps=10").status, 0);
  const std::string whole = contents_of(metrics);
  EXPECT_FALSE(has(test::run_program("report " + run), "missing"));
  test::write_file(metrics, whole.substr(whole.find('\n') + 1));
  const Outcome reported = test::run_program("report " + run);
  EXPECT_TRUE(has(reported, "figures are missing")) << reported.output;
  EXPECT_NE(contents_of(run + "/report.html").find("figures are missing"), std::string::npos);
  std::filesystem::remove(metrics);
  const Outcome gone = test::run_program("report " + run);
  EXPECT_EQ(gone.status, 1);
  EXPECT_TRUE(has(gone, "figures were logged and are gone with it")) << gone.output;

  const Outcome resumed = train("run", "--train.steps=15 --run.resume=true");
  EXPECT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_TRUE(has(resumed, "figures up to step 10 are missing")) << resumed.output;
  const Outcome later = test::run_program("report " + run);
  EXPECT_TRUE(has(later, "figures up to step 10 are missing")) << later.output;

  const Outcome cut = disturb("cut", "rm " + root_ +
                                         "/cut/metrics.jsonl; sleep 0.5; kill -TERM "
                                         "$(pgrep -n -f 'run.dir=" +
                                         root_ + "/[c]ut')");
  EXPECT_EQ(cut.status, 0) << cut.output;
  EXPECT_TRUE(has(cut, "while the run wrote to it: figures up to step")) << cut.output;
}

TEST_F(RunFaults, AStoreIsFoundFromAnyFolder) {
  const Outcome trained = run_command("cd " + root_ + " && " + test::program() + " " +
                                      arguments("run", "--train.steps=2 --data.store=store"));
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_NE(contents_of(root_ + "/run/config.toml").find("store = \"" + store_ + "\""),
            std::string::npos);
  const Outcome evaluated =
      run_command("cd / && " + test::program() + " eval --checkpoint " + root_ + "/run");
  EXPECT_EQ(evaluated.status, 0) << evaluated.output;
}

// Its config says what it began with; begun again from nothing it would be another run.
TEST_F(RunFaults, ARunThatBeganWithOthersWeightsDoesNotBeginAgainWithoutThem) {
  ASSERT_EQ(train("first", "--train.steps=3").status, 0);
  ASSERT_EQ(train("again", "--train.steps=2 --run.start_from=" + root_ + "/first").status, 0);
  forget_checkpoints("again");
  const Outcome refused = train("again", "--train.steps=2 --run.resume=true");
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.output.find("began with the weights of '" + root_ + "/first'"),
            std::string::npos)
      << refused.output;
}

TEST_F(RunFaults, AStoreWithOtherEventsIsRefused) {
  ASSERT_EQ(train("run", "--train.steps=2").status, 0);
  const std::string before = store_;
  store_ = root_ + "/moved";
  std::filesystem::rename(before, store_);
  const Outcome moved = train("run", "--train.steps=4 --run.resume=true");
  EXPECT_EQ(moved.status, 0) << moved.output;
  // As if events had changed under the same number of users, items and events.
  const nlohmann::json state =
      nlohmann::json::parse(contents_of(root_ + "/run/checkpoints/step-000000004/state.json"));
  forge_state("run", 4, "store", "0123456789abcdef");
  const Outcome other = train("run", "--train.steps=6 --run.resume=true");
  EXPECT_EQ(other.status, 1);
  EXPECT_NE(other.output.find("was trained on other events than those of"), std::string::npos)
      << other.output;
  EXPECT_NE(other.output.find(state.at("store").get<std::string>()), std::string::npos);
}

// Two logs of as many users, items and events, one pair of them the other way round.
TEST_F(RunFaults, AStoreOfAsManyOtherEventsIsRefused) {
  const auto prepare = [&](const std::string& name, bool other) {
    std::string log = "user,item,timestamp\n";
    for (int user = 0; user < 30; ++user) {
      for (int event = 0; event < 12; ++event) {
        const int swapped = other && user == 7 && event < 2 ? 1 - event : event;
        log += std::to_string(user) + "," + std::to_string((user + swapped) % 40) + "," +
               std::to_string(1000 + event) + "\n";
      }
    }
    test::write_file(root_ + "/log.csv", log);
    const Outcome made =
        test::run_program("data prepare " + root_ + "/log.csv --out " + root_ + "/" + name);
    ASSERT_EQ(made.status, 0) << made.output;
    ASSERT_TRUE(has(made, "30 users, 40 items, 360 events")) << made.output;
  };
  prepare("first", false);
  prepare("second", true);
  store_ = root_ + "/first";
  ASSERT_EQ(train("run", "--train.steps=2").status, 0);
  const std::string weights = model_bytes("run");
  store_ = root_ + "/second";
  const Outcome refused = train("run", "--train.steps=4 --run.resume=true");
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(has(refused, "was trained on other events than those of '" + store_ + "'"))
      << refused.output;
  EXPECT_EQ(model_bytes("run"), weights);
  store_ = root_ + "/first";
  const Outcome resumed = train("run", "--train.steps=4 --run.resume=true");
  EXPECT_EQ(resumed.status, 0) << resumed.output;
}

}  // namespace
}  // namespace turbogr
