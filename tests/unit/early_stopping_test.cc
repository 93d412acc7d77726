#include "turbogr/run/early_stopping.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace turbogr::run {
namespace {

TEST(EarlyStopping, StopsAfterSoManyEvaluationsWithoutABetterOne) {
  EarlyStopping stopping(2);
  for (const double score : {0.1, 0.1, 0.2, 0.15}) {
    stopping.add(score);
    EXPECT_FALSE(stopping.out_of_patience()) << score;
  }
  stopping.add(0.2);  // as good is not better
  EXPECT_TRUE(stopping.out_of_patience());
  EXPECT_EQ(stopping.best(), 0.2);
}

TEST(EarlyStopping, WithoutPatienceItNeverStops) {
  EarlyStopping stopping(0);
  for (int i = 0; i < 100; ++i) stopping.add(0.0);
  EXPECT_FALSE(stopping.out_of_patience());
}

TEST(EarlyStopping, CountsOnFromItsState) {
  EarlyStopping first(3);
  for (const double score : {0.1 + 0.2, 0.1, 0.1}) first.add(score);
  EarlyStopping second(3);
  second.restore(nlohmann::json::parse(first.state().dump()));
  EXPECT_EQ(second.best(), first.best());
  EXPECT_FALSE(second.out_of_patience());
  second.add(0.1 + 0.2);
  EXPECT_TRUE(second.out_of_patience());
  // More patience in the config lets the run go on.
  EarlyStopping patient(9);
  patient.restore(second.state());
  EXPECT_FALSE(patient.out_of_patience());
}

TEST(EarlyStopping, AStateOfARunWithoutPatienceIsTheBeginning) {
  EarlyStopping stopping(1);
  stopping.restore(nlohmann::json::object());
  EXPECT_FALSE(stopping.best().has_value());
  stopping.add(0.0);
  EXPECT_FALSE(stopping.out_of_patience());
}

}  // namespace
}  // namespace turbogr::run
