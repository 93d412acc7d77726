// tools/kill_train with a few kills; by hand it does thirty, and ten of ranks.
#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "turbogr/dist/communicator.h"

namespace turbogr {
namespace {

TEST(KillTrain, AKilledRunGoesOnAndEndsBitEqual) {
  if (test::run_command("python3 -c pass").status != 0) GTEST_SKIP() << "there is no python3";
  const test::Outcome done =
      test::run_command("cd " + test::source_dir() +
                        " && tools/kill_train --times 3 --variant unequal --steps 200 --seed 1 "
                        "--program " +
                        test::program());
  EXPECT_EQ(done.status, 0) << done.output;
  EXPECT_NE(done.output.find("bit-equal to the one never stopped"), std::string::npos)
      << done.output;
}

TEST(KillTrain, AKilledRankIsNamedAndTheRunGoesOn) {
  if (test::run_command("python3 -c pass").status != 0) GTEST_SKIP() << "there is no python3";
  if (!dist::built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  const test::Outcome done =
      test::run_command("cd " + test::source_dir() +
                        " && tools/kill_train --times 2 --ranks 3 --train.schedule=exact_prefetch "
                        "--steps 200 --seed 2 "
                        "--program " +
                        test::program());
  EXPECT_EQ(done.status, 0) << done.output;
  EXPECT_NE(done.output.find("each was named"), std::string::npos) << done.output;
}

TEST(KillTrain, AveragedAndLateReplicasGoOnBitEqual) {
  if (test::run_command("python3 -c pass").status != 0) GTEST_SKIP() << "there is no python3";
  if (!dist::built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  for (const std::string variant : {"average", "semi_async"}) {
    const test::Outcome done =
        test::run_command("cd " + test::source_dir() +
                          " && tools/kill_train --times 1 --ranks 2 --steps 100 --seed 3 "
                          "--program " +
                          test::program() + " --variant " + variant);
    EXPECT_EQ(done.status, 0) << done.output;
    EXPECT_NE(done.output.find("in weights, state and figures"), std::string::npos) << done.output;
  }
}

}  // namespace
}  // namespace turbogr
