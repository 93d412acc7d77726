#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "tests/support/messages.h"
#include "turbogr/data/interrupt.h"

namespace turbogr::data {
namespace {

TEST(InterruptQuestion, DecidesInsteadOfSignals) {
  bool stop = false;
  int asked = 0;
  const InterruptQuestion question([&] {
    ++asked;
    return stop;
  });
  EXPECT_FALSE(interrupted());
  check_interrupt();
  stop = true;
  EXPECT_NE(test::message_of([] { check_interrupt(); }).find("interrupted"), std::string::npos);
  const int before = asked;
  stop = false;
  EXPECT_TRUE(interrupted()) << "a yes stays a yes";
  EXPECT_EQ(asked, before);
}

TEST(InterruptQuestion, KeepsGuardsOffTheHandlersOfItsThread) {
  struct sigaction before = {};
  struct sigaction during = {};
  sigaction(SIGINT, nullptr, &before);
  const InterruptQuestion question([] { return false; });
  {
    const InterruptGuard guard;
    sigaction(SIGINT, nullptr, &during);
  }
  EXPECT_EQ(during.sa_handler, before.sa_handler);
}

TEST(InterruptQuestion, IsOfItsThreadAndNests) {
  const InterruptQuestion outer([] { return true; });
  {
    const InterruptQuestion inner([] { return false; });
    EXPECT_FALSE(interrupted());
  }
  EXPECT_TRUE(interrupted());
  bool elsewhere = true;
  std::thread([&] { elsewhere = interrupted(); }).join();
  EXPECT_FALSE(elsewhere);
}

}  // namespace
}  // namespace turbogr::data
