#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace turbogr {
namespace {

using test::run_program;

const std::string kSmall =
    "bench layer --device cpu --heads 2 --head-dim 8 --width 20 --repeats 2 --threads 2 ";

TEST(BenchLayer, WritesFiguresOfACheckedLayer) {
  const test::TemporaryFolder folder;
  const std::string lengths = test::write_file(folder / "lengths.txt", "30\n1\n12\n").string();
  for (const std::string dtype : {"f32", "bf16"}) {
    const std::string json = (folder / (dtype + ".json")).string();
    const auto finished = run_program(kSmall + "--bias both --concat --baseline none --dtype " +
                                      dtype + " --lengths " + lengths + " --json " + json);
    ASSERT_EQ(finished.status, 0) << finished.output;
    const nlohmann::json row = nlohmann::json::parse(std::ifstream(json));
    EXPECT_EQ(row.at("dtype"), dtype);
    EXPECT_EQ(row.at("tokens"), 43);
    EXPECT_EQ(row.at("longest"), 30);
    EXPECT_GT(row.at("ms"), 0);
    EXPECT_LE(row.at("forward_ms"), row.at("ms"));
    EXPECT_LE(row.at("small_error"), row.at("allowed_error"));
    EXPECT_LE(row.at("full_error"), row.at("allowed_error"));
    // Three times: 2 n D (4 H d + 3 H d) of the products, 2 H d n (n + 1) of attention.
    EXPECT_EQ(row.at("causal_flops"),
              3.0 * (2 * 43 * 20 * 7 * 16 + 2 * 16 * (30 * 31 + 1 * 2 + 12 * 13)));
    EXPECT_FALSE(row.contains("baseline"));
  }
}

TEST(BenchLayer, GoesOnWithoutABaseline) {
  const auto no_python =
      run_program(kSmall + "--lengths uniform:9 --tokens 20 --baseline /no/such/python");
  EXPECT_EQ(no_python.status, 0) << no_python.output;
  EXPECT_NE(no_python.output.find("baseline not run: '/no/such/python"), std::string::npos)
      << no_python.output;
}

// A script that stands in for PyTorch: what it prints is what a baseline would.
TEST(BenchLayer, PutsTheBaselinesTimesBesideItsOwn) {
  const test::TemporaryFolder folder;
  const std::string script =
      test::write_file(folder / "it's a baseline",
                       "echo compiling\n"
                       "[ $2 ] && [ $(wc -l < $2) = 3 ] || exit 3\n"
                       "echo '{\"modes\": {\"eager\": {\"ms\": 1000, \"tokens_per_s\": 20},"
                       " \"compile\": {\"error\": \"no compiler\"}}}'\n")
          .string();
  const std::string json = (folder / "row.json").string();
  const auto finished =
      run_program(kSmall + "--lengths uniform:9 --tokens 20 --baseline sh --baseline-script \"" +
                  script + "\" --json " + json);
  ASSERT_EQ(finished.status, 0) << finished.output;
  EXPECT_NE(finished.output.find("padded PyTorch eager"), std::string::npos) << finished.output;
  EXPECT_NE(finished.output.find("failed: no compiler"), std::string::npos) << finished.output;
  const nlohmann::json row = nlohmann::json::parse(std::ifstream(json));
  const double ratio = row.at("baseline").at("modes").at("eager").at("ratio");
  EXPECT_DOUBLE_EQ(ratio, 1000 / row.at("ms").get<double>());
}

TEST(BenchLayer, RefusesUnknownLengths) {
  const auto finished = run_program(kSmall + "--lengths gauss:3");
  EXPECT_NE(finished.status, 0);
  EXPECT_NE(finished.output.find("unknown lengths 'gauss:3'"), std::string::npos)
      << finished.output;
}

}  // namespace
}  // namespace turbogr
