// `turbogr bench step` on a CPU: figures against a peak that can be read.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/output_file.h"

namespace turbogr {
namespace {

TEST(BenchStep, PrintsMfuAndItsPeak) {
  const test::TemporaryFolder folder;
  const std::string json = (folder / "step.json").string();
  const std::string command =
      "bench step " + test::source_dir() +
      "/configs/demo.toml --train.batch=0 --train.tokens=256 --data.max_length=32 --lengths "
      "uniform:32 --items 200 --steps 2 --train.threads=1 --json " +
      json;
  const test::Outcome outcome = test::run_program(command);
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.output.find("of 0 TFLOP/s"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("MFU "), std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.output.find(" 0.0 GiB"), std::string::npos) << outcome.output;
  const nlohmann::json row = nlohmann::json::parse(read_file(json));
  EXPECT_GT(row.at("peak_tflops").get<double>(), 0);
  EXPECT_GT(row.at("mfu_causal").get<double>(), 0);
  EXPECT_LE(row.at("mfu_causal").get<double>(), 1);
  EXPECT_GT(row.at("peak_bytes").get<double>(), 0);
  const test::Outcome slow = test::run_program(command + " --train.peak_tflops=0.0125");
  EXPECT_NE(slow.output.find("of 0.0125 TFLOP/s"), std::string::npos) << slow.output;
}

}  // namespace
}  // namespace turbogr
