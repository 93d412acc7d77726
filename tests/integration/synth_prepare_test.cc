// The program end to end: a synthetic world written as raw logs and prepared is the store the
// program writes directly, byte for byte.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <tuple>

#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/data/store.h"

namespace turbogr {
namespace {

using test::Outcome;
using test::read_file;
using test::run_program;
using test::TemporaryFolder;

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
    const Outcome outcome = run_program(step);
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
  const Outcome nowhere = run_program("data synth --users 5");
  EXPECT_NE(nowhere.status, 0);
  EXPECT_NE(nowhere.output.find("--out STORE, --csv FOLDER, or both"), std::string::npos);
  const std::string command = "data synth --users 5 --mean-length 20 --out " + at + "/s";
  EXPECT_EQ(run_program(command).status, 0);
  const Outcome again = run_program(command);
  EXPECT_NE(again.status, 0);
  EXPECT_NE(again.output.find(at + "/s"), std::string::npos) << again.output;
  EXPECT_EQ(run_program(command + " --overwrite").status, 0);
}

TEST(SynthPrepare, LogsComeWholeOrNotAtAllAndNeverIntoAStore) {
  TemporaryFolder folder;
  const std::string at = folder.path().string();
  const std::string command = "data synth --users 5 --mean-length 2000 ";
  const Outcome full = run_program(command + "--csv " + at + "/logs", "ulimit -f 100;");
  EXPECT_EQ(full.status, 1) << full.output;
  EXPECT_TRUE(std::filesystem::is_empty(folder / "logs")) << full.output;
  const Outcome both = run_program(command + "--out " + at + "/s --csv " + at + "/s");
  EXPECT_EQ(both.status, 1);
  EXPECT_NE(both.output.find("is a store; give the logs a folder"), std::string::npos)
      << both.output;
  const Outcome file = run_program(command + "--csv " + at + "/s/manifest.json");
  EXPECT_EQ(file.status, 1);
  EXPECT_NE(file.output.find("cannot make the folder"), std::string::npos) << file.output;
}

TEST(BenchLoader, SaysWhatIsWrongWithAnOption) {
  for (const auto& [option, status, part] :
       {std::tuple{"--tokens 0", 2, "'0' is not more than 0"},
        {"--long-history all", 1, "'all'"},
        {"--tokens 10", 1, "10"},
        {"--repeats 0", 2, "'0' is not more than 0"},
        {"--repeats 99999999999999999999", 2, "is not a whole number"}}) {
    const Outcome outcome = run_program(std::string("bench loader --users 2 ") + option);
    EXPECT_EQ(outcome.status, status) << option << outcome.output;
    EXPECT_NE(outcome.output.find(part), std::string::npos) << outcome.output;
  }
}

TEST(BenchLoader, MeasuresAndChecksItsTokens) {
  const Outcome outcome =
      run_program("bench loader --users 5 --max-length 64 --tokens 1000 --repeats 1");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("M tokens/s"), std::string::npos) << outcome.output;
}

}  // namespace
}  // namespace turbogr
