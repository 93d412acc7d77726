#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace turbogr {
namespace {

using test::run_program;

TEST(BenchBalance, WritesARowForEveryStrategyAndWorld) {
  const test::TemporaryFolder folder;
  const auto finished = run_program("bench balance --lengths kuairand27k --ranks 8,32 --steps 5 " +
                                    ("--json " + (folder / "rows.json").string()));
  ASSERT_EQ(finished.status, 0) << finished.output;
  const nlohmann::json rows = nlohmann::json::parse(std::ifstream(folder / "rows.json"));
  ASSERT_EQ(rows.size(), 6u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at("ranks"), i < 3 ? 8 : 32);
    EXPECT_EQ(rows[i].at("strategy"), i % 3 == 0 ? "fixed" : i % 3 == 1 ? "token" : "reallocation");
    EXPECT_LE(rows[i].at("waiting_mean"), rows[i].at("waiting_p99"));
    EXPECT_GT(rows[i].at("token_gap"), 0);
    EXPECT_EQ(rows[i].at("plan_ms") > 0, i % 3 == 2);
  }
}

TEST(BenchBalance, SaysWhatIsWrong) {
  EXPECT_NE(run_program("bench balance --lengths nowhere.csv").output.find("cannot read"),
            std::string::npos);
  EXPECT_EQ(run_program("bench balance --ranks 0").status, 2);
  EXPECT_EQ(run_program("bench balance --steps 1 --json /nowhere/rows.json").status, 1);
}

}  // namespace
}  // namespace turbogr
