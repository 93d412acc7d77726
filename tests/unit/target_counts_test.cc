#include "turbogr/data/target_counts.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/stores.h"
#include "tests/support/temporary_folder.h"

namespace turbogr::data {
namespace {

// In a numbered store event e has item e.
TEST(TargetCounts, CountWhatTrainingPredictsAndNothingHeldOut) {
  const test::TemporaryFolder folder;
  test::write_numbered_store(folder / "store", {5, 2, 6});
  const Store store(folder / "store");
  const std::vector<Window> all =
      make_windows(store, {.holdout = Holdout("test"), .max_length = 100});
  // User 0: events 0-3 are trained on, 0 is an input only. User 1 is too short. User 2: 7-11.
  EXPECT_EQ(target_counts(store, all),
            (std::vector<std::int64_t>{0, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0}));
  const std::vector<Window> last =
      make_windows(store, {.holdout = Holdout("test"), .max_length = 2});
  EXPECT_EQ(target_counts(store, last),
            (std::vector<std::int64_t>{0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0}));
  std::vector<Window> twice = last;
  twice.insert(twice.end(), last.begin(), last.end());
  EXPECT_EQ(target_counts(store, twice)[3], 2);
}

}  // namespace
}  // namespace turbogr::data
