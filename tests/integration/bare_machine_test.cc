// tools/bare_machine is ended halfway: nothing goes on, nothing is left.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace turbogr {
namespace {

using test::Outcome;
using test::run_command;

// In place of mmdebstrap a program that locks `alive`, says that it started and leaves a sleeper,
// of a session of its own, which keeps the lock; or one that fails.
class BareMachine : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    if (run_command("unshare --mount --pid --fork --kill-child --mount-proc true").status != 0) {
      GTEST_SKIP() << "this machine gives no namespaces";
    }
    std::filesystem::create_directory(folder_ / "left");
    std::filesystem::create_directory(folder_ / "works");
    std::filesystem::create_directory(folder_ / "fails");
    make_program("works", "exec 7> " + path("alive") + "; flock 7; touch $TMPDIR/mine " +
                              path("started") + "; setsid sleep 600");
    make_program("fails", "echo there is no network; exit 3");
  }

  // Of a shell: the tool with one of the two programs, and what can be asked about it.
  Outcome shell(const std::string& script) {
    const std::string tool = " tools/bare_machine demo";
    return run_command("bash -c 'cd " + test::source_dir() + "; export TMPDIR=" + path("left") +
                       "; works() { exec env PATH=" + path("works") + ":$PATH" + tool +
                       "; }; fails() { env PATH=" + path("fails") + ":$PATH" + tool +
                       "; }; wait_for_start() { for i in {1..300}; do [ ! -e " + path("started") +
                       " ] || return 0; sleep 0.1; done; echo it did not start; }; "
                       "sleeper() { if flock --timeout $1 " +
                       path("alive") + " true; then echo gone; else echo there; fi; }; " + script +
                       "'");
  }
  int left() const {
    int count = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator(folder_ / "left")) {
      ++count;
    }
    return count;
  }
  std::string path(const char* name) const { return (folder_ / name).string(); }

 private:
  void make_program(const char* name, const std::string& script) {
    const auto file = folder_ / name / "mmdebstrap";
    test::write_file(file, "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }

  test::TemporaryFolder folder_;
};

TEST_F(BareMachine, EndsEverythingWhenItIsEnded) {
  for (const auto& [signal, status] : {std::pair{"TERM", "143"}, {"HUP", "129"}}) {
    const Outcome ended =
        shell("works > /dev/null & wait_for_start; sleeper 0; kill -" + std::string(signal) +
              " $!; SECONDS=0; wait $!; echo $?; [ $SECONDS -le 3 ] || echo $SECONDS s; sleeper 0");
    EXPECT_EQ(ended.output, "there\n" + std::string(status) + "\ngone\n") << signal;
    EXPECT_EQ(left(), 0) << signal;
    std::filesystem::remove(path("started"));
  }
}

TEST_F(BareMachine, SaysWhatFailedAndLeavesNothing) {
  const Outcome failed = shell("fails");
  EXPECT_EQ(failed.status, 3) << failed.output;
  EXPECT_TRUE(test::has(failed, "there is no network")) << failed.output;
  EXPECT_EQ(left(), 0);
}

TEST_F(BareMachine, RemovesWhatAKilledRunLeftAndNothingOfARunStillGoingOn) {
  const Outcome killed = shell(
      "works > /dev/null & wait_for_start; kill -KILL $!; wait $! 2> /dev/null; echo $?; sleeper "
      "5");
  EXPECT_EQ(killed.output, "137\ngone\n");
  EXPECT_EQ(left(), 1);
  std::filesystem::remove(path("started"));
  const Outcome second = shell(
      "works > /dev/null & wait_for_start; fails > /dev/null; sleeper 0; ls -d $TMPDIR/* | wc -l; "
      "kill $!; wait $!; sleeper 0");
  EXPECT_EQ(second.output, "there\n1\ngone\n");
  EXPECT_EQ(left(), 0);
}

}  // namespace
}  // namespace turbogr
