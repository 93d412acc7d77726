// `turbogr plan` as people run it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/output_file.h"

namespace turbogr {
namespace {

const std::string kSmall =
    " --train.device=cuda --train.dtype=bf16 --train.tokens=2048"
    " --data.max_length=128 --negatives.set=batch ";

std::string plan(const std::string& more, const std::string& data = "movielens") {
  return "plan " + std::string(TGR_SOURCE_DIR) + "/configs/demo.toml" + kSmall + "--data " + data +
         " " + more;
}

TEST(Plan, SearchesSettingsAndSaysWhatAnEpochCosts) {
  const test::TemporaryFolder folder;
  const std::string file = (folder.path() / "plan.json").string();
  const test::Outcome run =
      test::run_program(plan("--nodes 2 --gpus 2 --price 4 --explain --json " + file));
  ASSERT_EQ(run.status, 0) << run.output;
  for (const char* part : {"groups of 2", "groups of 4", "semi_async", "late rows", "linearity",
                           "at 4 a device and hour", "--dist.group=", "published:", "measured:"}) {
    EXPECT_TRUE(test::has(run, part)) << part << "\n" << run.output;
  }
  const auto json = nlohmann::json::parse(read_file(file));
  EXPECT_EQ(json["choices"].size(), 12u);
  EXPECT_EQ(json["best"]["result"], "same");
  EXPECT_GT(json["best"]["device_gib"].get<double>(), 0);
  const double best = json["best"]["simulation"]["step_ms"];
  for (const auto& choice : json["choices"]) {
    if (choice["result"] == "same") {
      EXPECT_LE(best, choice["simulation"]["step_ms"].get<double>());
    }
  }
}

TEST(Plan, SimulatesTheSameTwiceAndTraces) {
  const test::TemporaryFolder folder;
  const std::string one = (folder.path() / "one.json").string();
  const std::string two = (folder.path() / "two.json").string();
  const std::string trace = (folder.path() / "trace.json").string();
  const std::string more = "--ranks 64 --gpus 8 --simulate --steps 2 --trace-ranks 0,63 --trace ";
  ASSERT_EQ(test::run_program(plan(more + trace + " --json " + one)).status, 0);
  ASSERT_EQ(test::run_program(plan(more + trace + " --json " + two)).status, 0);
  auto first = nlohmann::json::parse(read_file(one)),
       second = nlohmann::json::parse(read_file(two));
  for (auto* json : {&first, &second}) {
    json->erase("plan_ms");  // the machine's own time
    json->erase("simulation_s");
    json->erase("simulation_processor_s");
  }
  EXPECT_EQ(first, second);
  EXPECT_NE(read_file(trace).find("forward and backward"), std::string::npos);
}

TEST(Plan, SaysWhatIsWrong) {
  const auto says = [](const std::string& command, const std::string& part) {
    const test::Outcome run = test::run_program(command);
    EXPECT_NE(run.status, 0);
    EXPECT_TRUE(test::has(run, part)) << run.output;
  };
  says(plan("--gpu h900"), "h100, h200");
  says(plan("--network fast"), "eth25, ib400x8, roce200");
  says(plan("--ranks 12 --gpus 8"), "no multiple of --gpus");
  says(plan("--nodes 2", "nowhere"), "no store, world or file 'nowhere'");
  says(plan("--nodes 100 --simulate --trace t.json --trace-ranks 900"),
       "--trace-ranks names rank 900");
}

}  // namespace
}  // namespace turbogr
