#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"

namespace turbogr {
namespace {

using test::run_program;

TEST(BenchNegatives, WritesARowForEveryPathAndNumberOfNegatives) {
  const auto path = std::filesystem::path(testing::TempDir()) / "tgr_bench_negatives.json";
  const auto finished = run_program(
      "bench negatives --tokens 100 --width 20 --items 50 --negatives 3,40 --seconds 0.01 "
      "--json " +
      path.string());
  ASSERT_EQ(finished.status, 0) << finished.output;
  const nlohmann::json rows = nlohmann::json::parse(std::ifstream(path));
  std::filesystem::remove(path);
  std::map<std::string, std::map<std::int64_t, double>> bytes;
  for (const auto& row : rows) {
    EXPECT_EQ(row.at("device"), "cpu");
    EXPECT_EQ(row.at("tokens"), 100);
    EXPECT_EQ(row.at("width"), 20);
    EXPECT_GT(row.at("ms"), 0);
    bytes[row.at("path")][row.at("negatives")] = row.at("peak_bytes");
  }
  ASSERT_EQ(bytes.size(), 3u);
  for (const char* name : {"fused", "materialised", "shared"}) EXPECT_EQ(bytes[name].size(), 2u);
  // One row of the tensor and one of its gradient for each of 37 more negatives a token.
  EXPECT_GT(bytes["materialised"][40] - bytes["materialised"][3], 2 * 37 * 100 * 20 * 4);
  EXPECT_LT(bytes["fused"][40], bytes["materialised"][40]);
}

TEST(BenchNegatives, RefusesNothingToMeasure) {
  const auto finished = run_program("bench negatives --tokens 0");
  EXPECT_NE(finished.status, 0);
  EXPECT_NE(finished.output.find("'0' is not more than 0"), std::string::npos) << finished.output;
}

}  // namespace
}  // namespace turbogr
