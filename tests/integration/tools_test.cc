// What the scripts of tools/ look at, and what they say.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace turbogr {
namespace {

using test::has;
using test::Outcome;
using test::run_command;

class Tools : public testing::Test {
 protected:
  void SetUp() override {
    if (run_command("git -C " + test::source_dir() + " rev-parse HEAD").status != 0) {
      GTEST_SKIP() << "the sources are no git repository";
    }
  }
  static Outcome in_sources(const std::string& command) {
    return run_command("cd " + test::source_dir() + " && " + command);
  }
};

TEST_F(Tools, LintLooksAtASourceThatReadsAHeader) {
  const auto sources = [](const std::string& files) {
    return in_sources("tools/lint --sources " + files).output;
  };
  EXPECT_EQ(sources("turbogr/core/check.h turbogr/core/check.cc"), "turbogr/core/check.cc\n");
  EXPECT_EQ(sources("tests/fuzz/support.h"), "tests/fuzz/arrow.cc\n");
  // Read by CUDA files alone; by another header alone.
  EXPECT_TRUE(sources("turbogr/cuda/wgmma.cuh").ends_with(".cu\n"));
  EXPECT_TRUE(
      sources("turbogr/ops/attention/portable/attention_portable_tile.cuh").ends_with(".cu\n"));
  EXPECT_EQ(sources("no/such/header.h"), "");
}

TEST_F(Tools, CheckSameBytesSaysWhatDiffers) {
  const test::TemporaryFolder folder;
  // A make whose library knows its folder's name, when it is told to.
  const auto make = test::write_file(
      folder / "make",
      "#!/bin/sh\nset -e\n[ \"$3\" = package ] && [ -n \"$CCACHE_DISABLE\" ]\nmkdir -p "
      "$2/build/packages\n"
      "echo program > $2/build/turbogr\necho library > $2/build/libturbogr_c.so.1\n"
      "[ -z \"$PATHS\" ] || echo $2 >> $2/build/libturbogr_c.so.1\n"
      "[ -z \"$BROKEN\" ] || { echo this does not compile; exit 1; }\n"
      "echo package > $2/build/packages/turbogr.deb\n");
  std::filesystem::permissions(make, std::filesystem::perms::owner_all);
  std::filesystem::create_directory(folder / "left");
  const std::string check = "TMPDIR=" + (folder / "left").string() +
                            " PATH=" + folder.path().string() + ":$PATH tools/check_same_bytes cpu";
  const Outcome same = in_sources(check);
  EXPECT_EQ(same.status, 0) << same.output;
  EXPECT_TRUE(has(same, "packages/turbogr.deb\n")) << same.output;
  EXPECT_FALSE(has(same, "DIFFERENT")) << same.output;
  const Outcome different = in_sources("PATHS=1 " + check);
  EXPECT_EQ(different.status, 1);
  const std::string said = "\nDIFFERENT ";
  const std::size_t line = different.output.find(said);
  ASSERT_NE(line, std::string::npos) << different.output;
  EXPECT_TRUE(different.output.substr(line + 1).substr(0, 80).find("libturbogr_c.so.1\n") !=
              std::string::npos)
      << different.output;
  EXPECT_EQ(different.output.find(said, line + 1), std::string::npos) << different.output;
  const Outcome broken = in_sources("BROKEN=1 " + check);
  EXPECT_EQ(broken.status, 1);
  EXPECT_TRUE(has(broken, "this does not compile")) << broken.output;
  EXPECT_TRUE(std::filesystem::is_empty(folder / "left"));
}

TEST(InstallPackages, LeavesOtherDistributionsAlone) {
  const Outcome elsewhere = run_command("cd " + test::source_dir() +
                                        " && PATH=/nowhere /bin/sh tools/install_packages "
                                        "tools/packages.txt tools/packages-test.txt");
  EXPECT_EQ(elsewhere.status, 0) << elsewhere.output;
  EXPECT_EQ(elsewhere.output,
            "this is no Debian: what tools/packages.txt tools/packages-test.txt names must be "
            "installed already, by the names it has here\n");
}

}  // namespace
}  // namespace turbogr
