// tools/kill_train with a few kills; by hand it does thirty.
#include <gtest/gtest.h>

#include "tests/support/program.h"

namespace turbogr {
namespace {

TEST(KillTrain, AKilledRunGoesOnAndEndsBitEqual) {
  if (test::run_command("python3 -c pass").status != 0) GTEST_SKIP() << "there is no python3";
  const test::Outcome done = test::run_command(
      "cd " TGR_SOURCE_DIR
      " && tools/kill_train --times 3 --steps 200 --seed 1 --program " TGR_PROGRAM);
  EXPECT_EQ(done.status, 0) << done.output;
  EXPECT_NE(done.output.find("bit-equal to the one never stopped"), std::string::npos)
      << done.output;
}

}  // namespace
}  // namespace turbogr
