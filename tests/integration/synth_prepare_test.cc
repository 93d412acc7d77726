// The program end to end: a synthetic world written as raw logs and prepared is the store the
// program writes directly, byte for byte.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <string>

#include "tests/support/temporary_folder.h"
#include "turbogr/data/store.h"

namespace turbogr {
namespace {

using test::read_file;
using test::TemporaryFolder;

struct Outcome {
  int status = 0;
  std::string output;  // both streams
};

Outcome run(const std::string& arguments) {
  const std::string command = std::string("'") + TGR_PROGRAM + "' " + arguments + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return {.status = -1, .output = "cannot start " + command};
  Outcome outcome;
  char buffer[4096];
  for (std::size_t got = 0; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    outcome.output.append(buffer, got);
  }
  outcome.status = ::pclose(pipe);
  return outcome;
}

std::map<std::string, std::string> bytes_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files[entry.path().filename().string()] = read_file(entry.path());
  }
  return files;
}

TEST(SynthPrepare, PreparedLogsAreTheStoreMadeDirectly) {
  TemporaryFolder folder;
  const std::string at = folder.path().string();
  const std::string world = "data synth --users 60 --mean-length 700 --seed 4 ";
  for (const std::string& step :
       {world + "--out " + at + "/plain --csv " + at + "/logs --threads 2",
        world + "--numbers --threads 1 --out " + at + "/numbers",
        "data prepare " + at + "/logs --format kuairand --number-columns none --out " + at +
            "/prepared_plain",
        "data prepare --format kuairand " + at + "/logs --out " + at + "/prepared_numbers",
        "data verify " + at + "/numbers"}) {
    const Outcome outcome = run(step);
    ASSERT_EQ(outcome.status, 0) << step << "\n" << outcome.output;
  }
  EXPECT_EQ(data::Store(folder / "plain").num_users(), 60);
  EXPECT_TRUE(bytes_of(folder / "plain") == bytes_of(folder / "prepared_plain"));
  EXPECT_TRUE(bytes_of(folder / "numbers") == bytes_of(folder / "prepared_numbers"));
  EXPECT_FALSE(bytes_of(folder / "plain") == bytes_of(folder / "numbers"));
}

TEST(SynthPrepare, SaysWhatIsMissingOrInTheWay) {
  TemporaryFolder folder;
  const std::string at = folder.path().string();
  const Outcome nowhere = run("data synth --users 5");
  EXPECT_NE(nowhere.status, 0);
  EXPECT_NE(nowhere.output.find("--out STORE, --csv FOLDER, or both"), std::string::npos);
  const std::string command = "data synth --users 5 --mean-length 20 --out " + at + "/s";
  EXPECT_EQ(run(command).status, 0);
  const Outcome again = run(command);
  EXPECT_NE(again.status, 0);
  EXPECT_NE(again.output.find(at + "/s"), std::string::npos) << again.output;
  EXPECT_EQ(run(command + " --overwrite").status, 0);
}

TEST(BenchLoader, MeasuresAndChecksItsTokens) {
  const Outcome outcome = run("bench loader --users 5 --max-length 64 --tokens 1000 --repeats 1");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("M tokens/s"), std::string::npos) << outcome.output;
}

}  // namespace
}  // namespace turbogr
