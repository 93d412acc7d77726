// `turbogr bench rank-step` and `rank-request` on a CPU, as small as the shapes allow.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/output_file.h"

namespace turbogr {
namespace {

nlohmann::json figures_of(const std::string& command) {
  const test::TemporaryFolder folder;
  const std::string json = (folder / "figures.json").string();
  const test::Outcome outcome =
      test::run_program("bench " + command +
                        " --device cpu --dtype f32 --table-dtype f32 --cut 100000 --layers 1 "
                        "--steps 1 --threads 2 --peak-tflops 1 --json " +
                        json);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  for (const char* word : {"unofficial", "nominal", "real", "causal", "of 1\n"}) {
    EXPECT_NE(outcome.output.find(word), std::string::npos) << word << outcome.output;
  }
  return nlohmann::json::parse(read_file(json));
}

TEST(BenchRank, StepsHaveTheFillAskedFor) {
  const nlohmann::json row = figures_of("rank-step --batch 3 --fill 0.003");
  EXPECT_EQ(row.at("batch"), 3);
  EXPECT_NEAR(row.at("gflop_real").get<double>() / row.at("gflop_nominal").get<double>(), 0.003,
              0.0005);
  EXPECT_NEAR(row.at("gflop_nominal").get<double>() / 3, 315.7 / 3, 0.1);  // one layer of three
  EXPECT_GT(row.at("per_s").get<double>(), 0);
  EXPECT_GT(row.at("loss").get<double>(), 0);
  EXPECT_EQ(row.at("table_rows").size(), 11u);
}

TEST(BenchTables, ManyMoveTheirRowsAsOneDoes) {
  const test::Outcome outcome = test::run_program(
      "bench tables --tables 3 --rows 3000 --ids 600 --width 8 --seconds 0.01 --threads 2");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("many over one"), std::string::npos) << outcome.output;
}

TEST(BenchRank, RequestsAreTimed) {
  const nlohmann::json row = figures_of("rank-request --batch 2 --history 30 --targets 5");
  EXPECT_EQ(row.at("batch"), 2);
  EXPECT_EQ(row.at("tokens"), 2 * (1 + 30 + 5));
  EXPECT_GT(row.at("per_s").get<double>(), 0);
  EXPECT_EQ(row.at("table_rows").size(), 3u);
}

}  // namespace
}  // namespace turbogr
