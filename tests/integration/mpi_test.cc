// Several processes under mpirun: every collective, and every way a rank can leave.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "tests/support/mpirun.h"
#include "tests/support/paths.h"
#include "turbogr/dist/communicator.h"

namespace turbogr {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class Mpi : public testing::Test {
 protected:
  void SetUp() override {
    if (!dist::built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  }
};

TEST_F(Mpi, EveryCollectiveOnEveryGroup) {
  for (const int ranks : {1, 3, 4}) {
    const test::Outcome outcome = test::mpirun(ranks, test::mpi_ranks() + " collectives");
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_NE(outcome.output.find(std::to_string(ranks) + " ranks agree"), std::string::npos)
        << outcome.output;
  }
}

TEST_F(Mpi, ARankThatThrowsEndsAllAndIsNamed) {
  const auto begin = std::chrono::steady_clock::now();
  const test::Outcome outcome = test::mpirun(4, test::mpi_ranks() + " throw 2");
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.output.find("turbogr: rank 2: the store has no column 'time'"),
            std::string::npos)
      << outcome.output;
  EXPECT_LT(seconds_since(begin), 20);
}

TEST_F(Mpi, ARankThatDiesEndsAllAndIsNamed) {
  const auto begin = std::chrono::steady_clock::now();
  const test::Outcome outcome = test::mpirun(4, test::mpi_ranks() + " die 1");
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.output.find("rank 1"), std::string::npos) << outcome.output;
  EXPECT_LT(seconds_since(begin), 20);
}

TEST_F(Mpi, ARankThatStallsIsNamedByTheOthers) {
  const test::Outcome outcome = test::mpirun(4, test::mpi_ranks() + " stall 3");
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.output.find("of world has waited 2 s for rank 3; look there"),
            std::string::npos)
      << outcome.output;
}

}  // namespace
}  // namespace turbogr
