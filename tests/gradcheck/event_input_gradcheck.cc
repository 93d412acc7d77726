#include <gtest/gtest.h>

#include "tests/support/event_case.h"
#include "tests/support/gradcheck.h"

namespace turbogr::ops {
namespace {

void take_start(Tensor& tensor) {
  auto* values = reinterpret_cast<double*>(tensor.data());
  for (std::int64_t i = 0; i < tensor.size(); ++i) values[i] -= test::kEventStart;
}

TEST(EventInputGradient, MatchesCentralDifferences) {
  const test::EventCase c = {.prefix = 2,
                             .history = {4, 0, 12},
                             .targets = {1, 2, 2},
                             .cols = 3,
                             .dropout = {.rate = 0.3, .seed = 5}};
  const test::EventBatch batch(c);
  test::EventInputs<double> in(c);
  Context ctx({.threads = 2});
  const auto loss = [&] {
    return test::dot(test::run_event_input<double>(ctx, c, batch, in).x, in.dx);
  };
  test::EventResults out = test::run_event_input<double>(ctx, c, batch, in);
  take_start(out.dposition);
  take_start(out.dtime);
  EXPECT_LT(test::gradient_gap(in.prefix, out.dprefix, loss), 1e-8);
  EXPECT_LT(test::gradient_gap(in.events, out.devents, loss), 1e-8);
  EXPECT_LT(test::gradient_gap(in.position, out.dposition, loss), 1e-8);
  EXPECT_LT(test::gradient_gap(in.time, out.dtime, loss), 1e-8);
}

TEST(ActionBitsGradient, MatchesCentralDifferences) {
  const test::EventCase c = {.prefix = 1, .history = {4, 0, 3}, .targets = {1, 2, 0}};
  const test::EventBatch batch(c);
  Tensor table = test::random_tensor<double>({3, 4}, 1),
         target = test::random_tensor<double>({12}, 2);
  const Tensor drows = test::random_tensor<double>({c.events(), 12}, 3);
  Context ctx({.threads = 2});
  const auto run = [&] {
    return test::run_action_bits<double>(ctx, c, batch, table, target, drows);
  };
  const auto loss = [&] { return test::dot(run().rows, drows); };
  test::ActionResults out = run();
  take_start(out.dtable);
  take_start(out.dtarget);
  EXPECT_LT(test::gradient_gap(table, out.dtable, loss), 1e-8);
  EXPECT_LT(test::gradient_gap(target, out.dtarget, loss), 1e-8);
}

}  // namespace
}  // namespace turbogr::ops
