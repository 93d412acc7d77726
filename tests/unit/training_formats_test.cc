// Training over thread ranks with rows and tables in half the bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/rank_training.h"

namespace turbogr::train {
namespace {

using test::message_of;

TEST(RowFormats, TrainsInBf16WithRowsInBf16OnTheWire) {
  train::RetrievalOptions options = smooth_options();
  const Outcome wide = train_on_ranks<bf16>(options, {2, 2}, {});
  // The model rounds rows to bf16 anyway: rounding them before they travel changes nothing.
  expect_equal(wide, train_on_ranks<bf16>(options, {2, 2}, {.row_wire = DType::kBf16}),
               "bf16 wire");
  const Outcome alone = train_alone<bf16>(options);
  for (int step = 0; step < kSteps; ++step) {
    const auto at = static_cast<std::size_t>(step);
    EXPECT_NEAR(alone.results[at].loss, wide.results[at].loss, 0.02);
  }
}

// Negatives read as f16 are those one rank rounds, whoever holds their rows.
TEST(RowFormats, F16NegativesWorkOverRanks) {
  train::RetrievalOptions options = smooth_options();
  options.negatives.half = true;
  const Outcome alone = train_alone<float>(options);
  EXPECT_NE(alone.results[0].loss, train_alone<float>(smooth_options()).results[0].loss);
  for (const Layout layout : {Layout{2, 2}, {4, 2}, {3, 1}}) {
    const Outcome serial = train_on_ranks<float>(options, layout, {});
    expect_near(alone, serial, 1e-5, std::to_string(layout.ranks) + " ranks");
    expect_equal(
        serial,
        train_on_ranks<float>(options, layout, {.schedule = train::StepSchedule::kExactPrefetch}),
        "exact_prefetch");
    expect_equal(serial, train_on_ranks<float>(options, layout, {.device_rows = true}), "device");
  }
}

// Exact schedules are still exact, and ranks are one rank up to rounding.
void expect_tables_train(DType dtype) {
  train::RetrievalOptions options = smooth_options();
  options.table_dtype = dtype;
  const Outcome alone = train_alone<float>(options);
  const Outcome wide = train_alone<float>(smooth_options());
  for (const Layout layout : {Layout{2, 2}, {4, 2}}) {
    const Outcome serial = train_on_ranks<float>(options, layout, {});
    for (int step = 0; step < kSteps; ++step) {
      const auto at = static_cast<std::size_t>(step);
      EXPECT_NEAR(serial.results[at].loss, alone.results[at].loss, 1e-3);
      EXPECT_NEAR(serial.results[at].loss, wide.results[at].loss, 1e-2);
    }
    for (const train::StepSchedule schedule :
         {train::StepSchedule::kOverlap, train::StepSchedule::kExactPrefetch}) {
      expect_equal(serial, train_on_ranks<float>(options, layout, {.schedule = schedule}),
                   "schedule");
    }
    expect_equal(serial, train_on_ranks<float>(options, layout, {.device_rows = true}), "device");
  }
  EXPECT_NE(
      message_of([&] {
        train_on_ranks<float>(options, {2, 1}, {.replicas = embedding::ReplicaMode::kAverage});
      }).find("cannot be averaged"),
      std::string::npos);
}

TEST(RowFormats, TablesInBf16Train) { expect_tables_train(DType::kBf16); }
TEST(RowFormats, TablesInF16Train) { expect_tables_train(DType::kF16); }

}  // namespace
}  // namespace turbogr::train
