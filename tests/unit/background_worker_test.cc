#include "turbogr/core/background_worker.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace turbogr
