#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tests/support/program.h"
#include "turbogr/core/context.h"
#include "turbogr/core/device_memory.h"

namespace turbogr {
namespace {

using test::run_program;

TEST(BenchAttention, SaysWhatIsWrongWithItsOptions) {
  const std::pair<const char*, const char*> cases[] = {
      {"--device cpu", "turbogr bench ops --op hstu_attention"},
      {"--heads 0", "heads is 0; give at least 1"},
      {"--head-dim 257", "head-dim is 257; give 1 to 256"},
      {"--bias some", "unknown bias 'some'"},
      {"--model sasrec", "unknown model 'sasrec'"},
      {"--dtype f16", "unknown dtype 'f16'"},
      {"--repeats 0", "repeats is 0"},
      {"--lengths uniform:5", "wanted uniform:L:B"},
      {"--lengths uniform:5:x", "'x' is not a positive whole number"},
      {"--lengths /nowhere/lengths.txt", "cannot read the lengths '/nowhere/lengths.txt'"}};
  for (const auto& [arguments, message] : cases) {
    const auto finished = run_program(std::string("bench attention ") + arguments);
    EXPECT_NE(finished.status, 0) << arguments;
    EXPECT_NE(finished.output.find(message), std::string::npos) << finished.output;
  }
}

TEST(BenchAttention, SaysThatItNeedsAGpu) {
  if (kWithCuda && device_memory().total > 0) GTEST_SKIP() << "there is a GPU here";
  const auto finished = run_program("bench attention --lengths uniform:64:2");
  EXPECT_NE(finished.status, 0);
  EXPECT_NE(finished.output.find(kWithCuda ? "no usable NVIDIA GPU" : "this build has no CUDA"),
            std::string::npos)
      << finished.output;
}

TEST(BenchAttention, WritesItsFigures) {
  if (!kWithCuda || device_memory().total == 0) GTEST_SKIP() << "no NVIDIA GPU on this machine";
  const auto path = std::filesystem::path(testing::TempDir()) / "tgr_bench_attention.json";
  for (const char* model : {"hstu", "fuxi"}) {
    const auto finished = run_program(std::string("bench attention --model ") + model +
                                      " --lengths uniform:300:4 --heads 2 --head-dim 64 --bias "
                                      "both --repeats 3 --json " +
                                      path.string());
    ASSERT_EQ(finished.status, 0) << finished.output;
    const nlohmann::json row = nlohmann::json::parse(std::ifstream(path));
    EXPECT_EQ(row.at("tokens"), 1200);
    for (const char* key : {"forward_ms", "backward_ms", "forward_tflops", "backward_tflops"}) {
      EXPECT_GT(row.at(key), 0) << key;
    }
    std::filesystem::remove(path);
  }
}

}  // namespace
}  // namespace turbogr
