#include "turbogr/run/rank_cores.h"

#include <gtest/gtest.h>

#include <memory>

namespace turbogr::run {
namespace {

TEST(RankCores, AreSharedByTheRanksOfAMachine) {
  EXPECT_EQ(threads_for_rank(3, {.own = 16, .together = 16, .ranks = 4}), 3);
  // All may run everywhere; each has cores of its own; two have one core each of many.
  EXPECT_EQ(threads_for_rank(0, {.own = 16, .together = 16, .ranks = 4, .launcher = 16}), 4);
  EXPECT_EQ(threads_for_rank(0, {.own = 4, .together = 16, .ranks = 4, .launcher = 16}), 4);
  EXPECT_EQ(threads_for_rank(0, {.own = 1, .together = 2, .ranks = 2, .launcher = 16}), 1);
  EXPECT_EQ(threads_for_rank(0, {.own = 2, .together = 2, .ranks = 4, .launcher = 2}), 1);
}

TEST(RankCores, ThatTheLauncherLeavesToNobodyAreNamed) {
  const std::string remark = unused_cores({.own = 1, .together = 2, .ranks = 2, .launcher = 16});
  EXPECT_NE(remark.find("2 ranks of this machine may use 2 of its 16 cores"), std::string::npos);
  EXPECT_NE(remark.find("--bind-to none"), std::string::npos);
  EXPECT_EQ(unused_cores({.own = 4, .together = 16, .ranks = 4, .launcher = 16}), "");
  EXPECT_EQ(unused_cores({.own = 1, .together = 2, .ranks = 2, .launcher = 2}), "");
  EXPECT_EQ(unused_cores({.own = 1, .together = 1, .ranks = 1, .launcher = 1}), "");
}

TEST(RankCores, OfAWorldOfOneAreItsOwn) {
  const std::unique_ptr<dist::Communicator> self = dist::make_self();
  const RankCores cores = rank_cores(*self);
  EXPECT_GE(cores.own, 1);
  EXPECT_EQ(cores.together, cores.own);
  EXPECT_EQ(cores.ranks, 1);
}

}  // namespace
}  // namespace turbogr::run
