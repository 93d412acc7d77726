// The program by itself: what it says of itself, and that an installed copy works.
#include "tests/support/program.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "turbogr/core/simd_level.h"
#include "turbogr/core/version.h"

namespace turbogr {
namespace {

using test::run_command;
using test::run_program;

TEST(Program, SaysItsVersionAndCommit) {
  const auto finished = run_program("--version");
  EXPECT_EQ(finished.status, 0);
  EXPECT_EQ(finished.output,
            "turbogr " + std::string(version()) + " (" + std::string(commit()) + ")\n");
}

TEST(Program, DoctorWarnsOfWhatIsEmulated) {
  const auto finished = test::run_command("TGR_SIMD=avx2 " + test::program() + " doctor");
  EXPECT_EQ(finished.status, 0);
  EXPECT_NE(finished.output.find("bf16       emulated in f32"), std::string::npos);
  EXPECT_NE(finished.output.find("warning    this processor has no bf16 products"),
            std::string::npos)
      << finished.output;
}

TEST(Program, DoctorShowsMachineAndBuild) {
  const auto finished = run_program("doctor");
  EXPECT_EQ(finished.status, 0);
  for (const std::string word : {"turbogr ", "compiler ", "oneDNN ", "processor ", "threads ",
                                 "memory ", "bf16 ", "CUDA "}) {
    EXPECT_NE(finished.output.find(word), std::string::npos) << word << "\n" << finished.output;
  }
  EXPECT_NE(finished.output.find("kernels    " + std::string(name_of(best_simd_level()))),
            std::string::npos);
}

TEST(Program, ExplainsItselfWhenCalledWrongly) {
  for (const char* arguments : {"", "nosuch", "bench", "doctor --nosuch"}) {
    const auto finished = run_program(arguments);
    EXPECT_EQ(finished.status, 2) << arguments;
    EXPECT_NE(finished.output.find("Usage: "), std::string::npos) << finished.output;
  }
  for (const char* arguments : {"evla", "data evla"}) {
    const auto finished = run_program(arguments);
    EXPECT_NE(finished.output.find("there is no command 'evla'"), std::string::npos)
        << finished.output;
  }
}

// Known before any file is looked at: none of these is there.
TEST(Program, WrongValuesOfOptionsHaveTheStatusOfAWrongCommandLine) {
  for (const char* arguments :
       {"--log-level loud doctor", "data prepare x.csv --out s --format json",
        "data prepare x.csv --out s --memory lots", "data prepare x.csv --out s --shard 2/1",
        "data prepare x.csv --out s --shard 1/2 --min-user 3",
        "data prepare x.csv --out s --min-user -1", "data prepare x.csv --out s --header maybe",
        "data synth --users 5", "data synth --users 5 --like nobody --out s",
        "eval --checkpoint none --split half", "eval --checkpoint none --at 0",
        "eval --checkpoint none --seen never", "recommend --checkpoint none",
        "recommend --checkpoint none --user 1 --k 0", "recommend --checkpoint none --user 1 --all",
        "recommend --checkpoint none --user 1 --unknown drop", "rank --checkpoint none",
        "rank --checkpoint none --user 1", "tune --trials 0"}) {
    const auto finished = run_program(arguments);
    EXPECT_EQ(finished.status, 2) << arguments << ": " << finished.output;
    EXPECT_NE(finished.output.find("turbogr: "), std::string::npos) << finished.output;
  }
  // An override is no mistyped option.
  const auto finished = run_program("--log-level warn train --run.seed=1");
  EXPECT_NE(finished.output.find("'warn' is none of"), std::string::npos) << finished.output;
}

TEST(Program, ShowsThatTrainTuneAndConfigTakeAFile) {
  for (const std::string command : {"train", "tune", "config"}) {
    const auto finished = run_program(command + " --help");
    EXPECT_EQ(finished.status, 0);
    EXPECT_NE(
        finished.output.find("Usage: turbogr " + command + " [CONFIG.toml] [--KEY=VALUE ...]"),
        std::string::npos)
        << finished.output;
  }
}

TEST(Program, RefusesNumbersThatDoNotFitInsteadOfClampingThem) {
  for (const char* arguments :
       {"data synth --users 99999999999999999999 --out x", "data synth --users 1 --seed -1 --out x",
        "eval --checkpoint x --threads -1", "data synth --users 1.5 --out x",
        "eval --checkpoint x --at 10 99999999999999999999"}) {
    const auto finished = run_program(arguments);
    EXPECT_EQ(finished.status, 2) << arguments;
    EXPECT_NE(finished.output.find("is not a whole number"), std::string::npos) << finished.output;
  }
}

TEST(Program, KnowsBeforeItStartsThatFiguresCannotBeWritten) {
  const std::pair<const char*, const char*> cases[] = {
      {"eval --checkpoint nosuch --json /nosuch/x", "there is no folder '/nosuch'; make it"},
      {"bench negatives --json /nosuch/x", "there is no folder '/nosuch'; make it"},
      {"bench step nosuch.toml --trace /tmp", "'/tmp' is a folder; name the file to write"},
      {"bench step nosuch.toml --json x", "cannot open 'nosuch.toml'"},
  };
  for (const auto& [arguments, message] : cases) {
    const auto finished = run_program(arguments);
    EXPECT_EQ(finished.status, 1) << arguments;
    EXPECT_NE(finished.output.find(message), std::string::npos) << finished.output;
  }
}

TEST(Program, OutputThatCannotBeWrittenIsNoSuccess) {
  for (const char* arguments : {"doctor > /dev/full", "config --keys > /dev/full"}) {
    const auto finished = run_program(arguments);
    EXPECT_EQ(finished.status, 1) << arguments;
    EXPECT_NE(finished.output.find("No space left"), std::string::npos) << finished.output;
  }
}

// The kernel's own folder takes no new ones, from root either.
TEST(Program, AFolderThatTakesNoFilesIsNotCalledFull) {
  for (const char* arguments : {"data synth --users 5 --out /sys/kernel/store",
                                "recommend --checkpoint x --all --out /sys/kernel/lists.csv"}) {
    const auto finished = run_program(arguments);
    EXPECT_EQ(finished.status, 1) << arguments;
    EXPECT_NE(finished.output.find("check the permissions"), std::string::npos) << finished.output;
    EXPECT_EQ(finished.output.find("disk"), std::string::npos) << finished.output;
  }
}

TEST(Program, TooManyThreadsAreAnErrorAndNoCrash) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const auto finished = run_program("data synth --users 1 --threads 4000 --out x",
                                    "ulimit -v 2000000;");  // room for some of their stacks
  EXPECT_EQ(finished.status, 1) << finished.output;
  EXPECT_NE(finished.output.find("of 4000 threads could be started"), std::string::npos)
      << finished.output;
#endif
}

}  // namespace
}  // namespace turbogr
