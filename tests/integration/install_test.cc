// What `make install` puts somewhere, used by somebody who has no source tree.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace turbogr {
namespace {

namespace fs = std::filesystem;
using test::run_command;

// Installed once, then moved: nothing may remember where it was put.
class Installed : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new test::TemporaryFolder;
    const fs::path first = *folder_ / "first";
    const auto installed = run_command(test::cmake_program() + " --install " + test::build_dir() +
                                       " --prefix " + first.string());
    ASSERT_EQ(installed.status, 0) << installed.output;
    fs::rename(first, prefix());
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  static fs::path prefix() { return *folder_ / "moved"; }
  static std::string scratch(const char* name) { return (*folder_ / name).string(); }

 private:
  static inline test::TemporaryFolder* folder_ = nullptr;
};

TEST_F(Installed, ProgramRuns) {
  const auto finished = run_command((prefix() / "bin/turbogr").string() + " --version");
  EXPECT_EQ(finished.status, 0) << finished.output;
  EXPECT_EQ(finished.output, test::run_program("--version").output);
}

TEST_F(Installed, BenchFindsItsProgram) {
  const auto finished = run_command((prefix() / "bin/turbogr").string() + " bench --help");
  EXPECT_EQ(finished.status, 0) << finished.output;
  EXPECT_NE(finished.output.find("negatives"), std::string::npos) << finished.output;
}

TEST_F(Installed, BashCompletesCommandsAndOptions) {
  const std::string script = (prefix() / "share/bash-completion/completions/turbogr").string();
  const auto complete = [&](const std::string& words, int current) {
    return run_command("bash -c 'source " + script + "; COMP_WORDS=(" + words + "); COMP_CWORD=" +
                       std::to_string(current) + "; _turbogr; echo ${COMPREPLY[@]}'")
        .output;
  };
  EXPECT_EQ(complete("turbogr rec", 1), "recommend\n");
  EXPECT_EQ(complete("turbogr data pre", 2), "prepare\n");
  EXPECT_EQ(complete("turbogr data prepare --over", 3), "--overwrite\n");
  // Names of files are bash's own work: a name with a blank is one word.
  EXPECT_EQ(complete("turbogr report " + scratch(""), 2), "\n");
  EXPECT_EQ(run_command("bash -c 'source " + script + "; complete -p turbogr'").output,
            "complete -o default -F _turbogr turbogr\n");
}

// By a zsh at a terminal of its own, to which the lines are typed.
TEST_F(Installed, ZshCompletesCommandsOptionsAndFiles) {
  if (run_command("zsh --version").status != 0) GTEST_SKIP() << "there is no zsh";
  const std::string folder = (prefix() / "share/zsh/site-functions").string();
  const auto parsed = run_command("zsh -n " + folder + "/_turbogr");
  EXPECT_EQ(parsed.status, 0) << parsed.output;
  EXPECT_EQ(parsed.output, "");
  const fs::path here = scratch("typed-here");
  fs::create_directory(here);
  test::write_file(here / "a file", "");
  const auto completed = run_command(
      "cd " + here.string() + " && zsh -f " + test::source_dir() +
      "/tests/integration/complete.zsh " + folder + " " + scratch("completed") +
      " 'turbogr rec' 'turbogr data pre' 'turbogr data prepare --over' 'turbogr report a' "
      "'turbogr --log-level error trai' 'turbogr nothing-of-that-na'");
  EXPECT_EQ(completed.output,
            "turbogr recommend |\n"
            "turbogr data prepare |\n"
            "turbogr data prepare --overwrite |\n"
            "turbogr report a\\ file |\n"
            "turbogr --log-level error train |\n"
            "turbogr nothing-of-that-na|\n");
}

TEST_F(Installed, ManualNamesEveryCommand) {
  const std::string page =
      run_command("cat " + (prefix() / "share/man/man1/turbogr.1").string()).output;
  for (const char* command :
       {"data prepare", "data merge", "data synth", "train", "tune", "eval", "recommend", "rank",
        "export", "plan", "report", "config", "bench", "demo", "doctor"}) {
    EXPECT_NE(page.find(".SS \"turbogr " + std::string(command) + "\""), std::string::npos)
        << command;
  }
}

TEST_F(Installed, ManualIsSetWithoutAWarning) {
  if (run_command("groff --version").status != 0) GTEST_SKIP() << "there is no groff";
  const std::string page = (prefix() / "share/man/man1/turbogr.1").string();
  const auto warned = run_command("groff -man -ww -z " + page);
  EXPECT_EQ(warned.status, 0);
  EXPECT_EQ(warned.output, "");
  // -P: no bold, no underlines; and no hyphens at the ends of lines.
  const auto set = run_command("groff -man -Tascii -P-c -P-b -P-o -P-u " + page);
  EXPECT_NE(
      set.output.find("\n   turbogr data prepare\n       Turn raw logs into a sequence store\n"),
      std::string::npos)
      << set.output;
  EXPECT_NE(set.output.find("\n       --log-level\n              debug, info,"), std::string::npos);
}

TEST_F(Installed, CMakeFindsTheCLibrary) {
  const std::string build = scratch("with-package");
  const auto built =
      run_command(test::cmake_program() + " -S " + test::source_dir() + "/tests/downstream -B " +
                  build + " -DCMAKE_PREFIX_PATH=" + prefix().string() + " && " +
                  test::cmake_program() + " --build " + build + " && " + build + "/downstream");
  EXPECT_EQ(built.status, 0) << built.output;
}

TEST_F(Installed, PkgConfigFindsTheCLibrary) {
  if (run_command("pkg-config --version").status != 0) GTEST_SKIP() << "there is no pkg-config";
  const std::string program = scratch("by-pkg-config");
  const auto built = run_command(
      "export PKG_CONFIG_PATH=" + (prefix() / "lib/pkgconfig").string() + "; cc " +
      test::source_dir() + "/tests/downstream/main.c $(pkg-config --cflags --libs turbogr) -o " +
      program + " && LD_LIBRARY_PATH=" + (prefix() / "lib").string() + " " + program);
  EXPECT_EQ(built.status, 0) << built.output;
}

// As add_subdirectory: configured, with the C library as a target, no tests, no warnings as errors,
// optimised whatever the other project is. tools/bare_machine also builds and runs it.
TEST(Subfolder, ConfiguresInsideAnotherProject) {
  const test::TemporaryFolder folder;
  const auto configured = run_command(test::cmake_program() + " -G Ninja -S " + test::source_dir() +
                                      "/tests/downstream -B " + folder.path().string() +
                                      " -DTGR_SOURCE=" + test::source_dir() + " && ninja -C " +
                                      folder.path().string() + " -t commands downstream");
  EXPECT_EQ(configured.status, 0) << configured.output;
  EXPECT_NE(configured.output.find("libturbogr_c.so"), std::string::npos);
  EXPECT_EQ(configured.output.find("-Werror"), std::string::npos);
  EXPECT_EQ(configured.output.find("gtest"), std::string::npos);
  EXPECT_NE(configured.output.find(" -O2 "), std::string::npos);
  EXPECT_TRUE(test::read_file(folder / "CMakeCache.txt").find("CMAKE_BUILD_TYPE:STRING=\n") !=
              std::string::npos);
}

}  // namespace
}  // namespace turbogr
