#include "turbogr/core/background_worker.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/support/messages.h"

namespace turbogr {
namespace {

using test::message_of;

TEST(BackgroundWorker, WorksBesideAndHandsErrorsBack) {
  BackgroundWorker worker;
  int done = 0;
  worker.start([&] { done = 1; });
  worker.join();
  EXPECT_EQ(done, 1);
  worker.start([] { throw Error("no rows"); });
  EXPECT_EQ(message_of([&] { worker.join(); }), "no rows");
  worker.start([&] { done = 2; });
  worker.join();
  EXPECT_EQ(done, 2);
}

// Also of work that throws.
TEST(BackgroundWorker, LetsGoOfWhatItsWorkHeld) {
  BackgroundWorker worker;
  const auto held = std::make_shared<int>(3);
  worker.start([held] { EXPECT_EQ(*held, 3); });
  worker.join();
  EXPECT_EQ(held.use_count(), 1);
  worker.start([held] { throw Error("no rows"); });
  EXPECT_EQ(message_of([&] { worker.join(); }), "no rows");
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace turbogr
