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

TEST(SynthPrepare, YambdasFilesPreparedAreTheStoreMadeDirectly) {
  TemporaryFolder folder;
  const std::string at = folder.path().string();
  const std::string world =
      "data synth --like yambda --users 40 --items 3000 --mean-length 150 --seed 4 ";
  const std::string numbers = "--number-columns played_ratio_pct,track_length_seconds ";
  std::filesystem::create_directories(folder / "root/flat/50m");
  for (const std::string& step :
       {world + "--out " + at + "/plain --csv " + at + "/logs --threads 2",
        world + "--numbers --threads 1 --out " + at + "/numbers",
        "data prepare --format yambda " + at + "/logs --out " + at + "/prepared_plain",
        "data prepare --format yambda " + numbers + at + "/logs/multi_event.csv --out " + at +
            "/prepared_numbers",
        "data verify " + at + "/plain"}) {
    const Outcome outcome = run_program(step);
    ASSERT_EQ(outcome.status, 0) << step << "\n" << outcome.output;
  }
  EXPECT_TRUE(bytes_of(folder / "plain") == bytes_of(folder / "prepared_plain"))
      << read_file(folder / "plain/manifest.json")
      << read_file(folder / "prepared_plain/manifest.json");
  EXPECT_TRUE(bytes_of(folder / "numbers") == bytes_of(folder / "prepared_numbers"));

  // As published: the mappings lie two folders above the events, or nowhere.
  std::filesystem::rename(folder / "logs/multi_event.csv",
                          folder / "root/flat/50m/multi_event.csv");
  const std::string prepare =
      "data prepare --format yambda " + at + "/root/flat/50m --overwrite --out " + at + "/deep";
  const Outcome without = run_program(prepare);
  EXPECT_EQ(without.status, 0) << without.output;
  EXPECT_NE(without.output.find("no artist_item_mapping.parquet or .csv beside"), std::string::npos)
      << without.output;
  for (const char* name : {"artist_item_mapping.csv", "album_item_mapping.csv"}) {
    std::filesystem::rename(folder / "logs" / name, folder / "root" / name);
  }
  const Outcome with = run_program(prepare);
  EXPECT_EQ(with.status, 0) << with.output;
  EXPECT_TRUE(bytes_of(folder / "plain") == bytes_of(folder / "deep"));
  const Outcome empty =
      run_program("data prepare --format yambda " + at + "/root --out " + at + "/x");
  EXPECT_NE(empty.output.find("holds no multi_event.parquet"), std::string::npos) << empty.output;
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

// Nothing that a kind of world would not look at, and no size that none can have.
TEST(SynthPrepare, OptionsOfAnotherKindAndSizesOfNoneAreRefused) {
  TemporaryFolder folder;
  const std::string out = " --out " + folder.path().string() + "/s";
  for (const auto& [options, status, part] :
       {std::tuple{"--like yambda --users 5 --repeats 0.5", 2,
                   "--repeats is not for --like yambda"},
        {"--like dlrmv3 --users 5 --repeats 0.5", 2, "--repeats is not for --like dlrmv3"},
        {"--like dlrmv3 --users 5 --bayes-auc 0.9", 2, "--bayes-auc is for --like yambda"},
        {"--users 5 --bayes-auc 0.9", 2, "and this is kuairand27k"},
        {"--users 5 --parquet x", 2, "--parquet is for --like yambda"},
        {"--like kuai --users 5", 2, "'kuai' is none of"},
        {"--like yambda --users 5 --mean-length inf", 1, "histories of inf events"},
        {"--like yambda --users 5 --mean-length 1e300", 1, "events on average; use 0 for"},
        {"--like yambda --users 5 --max-length 1", 1, "histories of at most 1 events"},
        {"--like yambda --users 5 --max-length -7", 1, "histories of at most -7 events"},
        {"--like yambda --users 5 --bayes-auc nan", 1, "a Bayes AUC of nan"},
        {"--like yambda --users 3000000000", 1, "from 1 to 2147483647 are possible"},
        {"--like dlrmv3 --users 9000000000000000000", 1, "from 1 to 2147483647 are possible"},
        {"--like dlrmv3 --users 0", 1, "a world of 0 users"},
        {"--like movielens --users 5 --mean-length 1e300", 1, "events on average; use 0 for"}}) {
    const Outcome outcome = run_program("data synth " + std::string(options) + out);
    EXPECT_EQ(outcome.status, status) << options << outcome.output;
    EXPECT_NE(outcome.output.find(part), std::string::npos) << options << outcome.output;
  }
  const Outcome logs =
      run_program("data synth --users 5 --numbers --csv " + folder.path().string() + "/logs");
  EXPECT_EQ(logs.status, 2) << logs.output;
  EXPECT_NE(logs.output.find("--numbers is about a store"), std::string::npos) << logs.output;
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
        {"--long-history all", 2, "'all'"},
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
