#include "turbogr/data/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>

#include "tests/support/messages.h"

namespace turbogr::data {
namespace {

TEST(Interrupt, IsSeenAsLongAsAGuardLives) {
  EXPECT_FALSE(interrupted());
  {
    const InterruptGuard guard;
    EXPECT_EQ(test::message_of([] { check_interrupt(); }), "");
    std::raise(SIGTERM);
    EXPECT_TRUE(interrupted());
    EXPECT_EQ(interruption(), "SIGTERM");
    EXPECT_TRUE(test::has(test::message_of([] { check_interrupt(); }), "interrupted (SIGTERM)"));
  }
  EXPECT_FALSE(interrupted());
}

// A search of trials, a demo of commands: each has a guard, and so has what runs them.
TEST(Interrupt, OfOnePartIsKnownToTheWhole) {
  const auto handler = [] {
    struct sigaction now = {};
    ::sigaction(SIGTERM, nullptr, &now);
    return now.sa_handler;
  };
  const auto before = handler();
  {
    const InterruptGuard whole;
    {
      const InterruptGuard part;
      std::raise(SIGTERM);
    }
    EXPECT_TRUE(interrupted());
    const InterruptGuard next;
    EXPECT_TRUE(interrupted());
    EXPECT_NE(handler(), before);
  }
  EXPECT_EQ(handler(), before);
  EXPECT_FALSE(interrupted());
}

}  // namespace
}  // namespace turbogr::data
