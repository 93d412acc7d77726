// Files of earlier programs: stores and checkpoints load, resume and recommend as they did.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/mpirun.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/dist/communicator.h"

namespace turbogr {
namespace {

using nlohmann::json;

std::vector<json> lines_of(const std::string& path) {
  std::vector<json> records;
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) records.push_back(json::parse(line));
  return records;
}

class OldFiles : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(
        std::system(("cp -r " + test::source_dir() + "/tests/fixtures/v0.1/. " + root_).c_str()),
        0);
  }
  std::string resuming(const std::string& run) const {
    return "train " + root_ + "/" + run + "/config.toml --run.dir=" + root_ + "/" + run +
           " --run.resume=true --train.steps=9 --data.store=" + root_ + "/store";
  }
  // Every step's loss is the one that the old program logged.
  void expect_same_losses(const std::string& run) const {
    std::map<int, double> wanted, got;
    for (const json& line : lines_of(root_ + "/resumed.jsonl")) {
      wanted[line.at("step")] = line.at("loss");
    }
    for (const json& line : lines_of(root_ + "/" + run + "/metrics.jsonl")) {
      if (line.contains("loss")) got[line.at("step")] = line.at("loss");
    }
    ASSERT_EQ(wanted.size(), 9u);
    ASSERT_EQ(got.size(), wanted.size());
    for (const auto& [step, loss] : wanted) EXPECT_NEAR(got[step], loss, 1e-4) << step;
  }

  test::TemporaryFolder folder_;
  std::string root_ = folder_.path().string();
};

TEST_F(OldFiles, AStoreIsAsItWasWritten) {
  const test::Outcome verified = test::run_program("data verify " + root_ + "/store");
  EXPECT_EQ(verified.status, 0) << verified.output;
}

TEST_F(OldFiles, ACheckpointRecommendsWhatItDid) {
  const test::Outcome done = test::run_program(
      "recommend --checkpoint " + root_ + "/run --store " + root_ +
      "/store --all --k 5 --untrained-items --seen drop --out " + root_ + "/now.jsonl");
  ASSERT_EQ(done.status, 0) << done.output;
  const std::vector<json> was = lines_of(root_ + "/recommended.jsonl");
  const std::vector<json> is = lines_of(root_ + "/now.jsonl");
  ASSERT_EQ(was.size(), 30u);
  ASSERT_EQ(is.size(), was.size());
  for (std::size_t user = 0; user < was.size(); ++user) {
    // Ids were text in lists then.
    EXPECT_EQ(is[user].at("user").dump(), was[user].at("user").get<std::string>());
    const json &lists = was[user].at("items"), &now = is[user].at("items");
    ASSERT_EQ(now.size(), lists.size());
    for (std::size_t i = 0; i < lists.size(); ++i) {
      EXPECT_EQ(now[i].at("item").dump(), lists[i].at("item").get<std::string>()) << user;
      EXPECT_NEAR(now[i].at("score").get<double>(), lists[i].at("score").get<double>(), 1e-4);
    }
  }
}

TEST_F(OldFiles, ARunGoesOnAsItWouldHave) {
  const test::Outcome done = test::run_program(resuming("run"));
  ASSERT_EQ(done.status, 0) << done.output;
  expect_same_losses("run");
}

// A budget of tokens is a rank's: steps of two have other batches, so only that it goes on.
TEST_F(OldFiles, ARunOfOneGoesOnOverRanks) {
  if (!dist::built_with_mpi()) GTEST_SKIP() << "no MPI";
  const test::Outcome done = test::mpirun(2, test::program() + " " + resuming("run"));
  ASSERT_EQ(done.status, 0) << done.output;
  EXPECT_NE(done.output.find("at step 6"), std::string::npos) << done.output;
  for (const char* part : {"items-00001-of-00002", "items-00002-of-00002"}) {
    EXPECT_TRUE(std::filesystem::exists(root_ + "/run/checkpoints/step-000000009/" + part +
                                        ".safetensors"));
  }
  const test::Outcome again = test::run_program(resuming("run") + " --train.steps=10");
  EXPECT_EQ(again.status, 0) << again.output;
}

}  // namespace
}  // namespace turbogr
