#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/program.h"

namespace turbogr {
namespace {

using test::run_program;

constexpr const char* kTiny =
    "bench ops --tokens 300 --max-length 64 --heads 2 --head-dim 8 --seconds 0.01 --threads 1 ";

TEST(BenchOps, WritesARowForEveryOperatorAndDirection) {
  const auto path = std::filesystem::path(testing::TempDir()) / "tgr_bench_ops.json";
  const auto finished = run_program(kTiny + ("--json " + path.string()));
  ASSERT_EQ(finished.status, 0) << finished.output;
  const nlohmann::json rows = nlohmann::json::parse(std::ifstream(path));
  std::filesystem::remove(path);
  std::map<std::string, std::set<std::string>> directions;
  for (const auto& row : rows) {
    const std::string op = row.at("op");
    directions[op].insert(row.at("direction").get<std::string>() + " " +
                          row.at("dtype").get<std::string>());
    EXPECT_EQ(row.at("tokens"), 300) << op;
    for (const char* key : {"ms", "peak_share", "padded_ratio", "peak_bytes", "padded_bytes"}) {
      EXPECT_GT(row.at(key), 0) << op << " " << key;
    }
    // Bound by products, or by memory: one of the two is a number.
    EXPECT_NE(row.at("gflops").is_null(), row.at("gbytes_per_s").is_null()) << op;
    EXPECT_NE(finished.output.find(op), std::string::npos);
  }
  const std::set<std::string> all = {"forward f32",  "backward f32",  "both f32",
                                     "forward bf16", "backward bf16", "both bf16"};
  for (const char* op : {"hstu_attention", "fuxi_attention", "linear", "swiglu", "dropout",
                         "l2_normalize", "combine_input", "layer_norm", "rms_norm", "gated_norm",
                         "sampled_softmax", "shared_softmax", "full_softmax"}) {
    EXPECT_EQ(directions[op], all) << op;
  }
  const std::set<std::string> forward = {"forward f32", "forward bf16"};
  EXPECT_EQ(directions["embedding_gather"], forward);
  EXPECT_EQ(directions["top_k"], forward);
  EXPECT_EQ(directions["sum_duplicate_rows"],
            (std::set<std::string>{"backward f32", "backward bf16"}));
  EXPECT_EQ(directions["dedup_ids"], std::set<std::string>{"forward i64"});
  EXPECT_EQ(directions.size(), 17u);
}

TEST(BenchOps, RunsOneOperatorInOneFormatOnAllThreads) {
  const auto finished = run_program(
      "bench ops --op linear --dtype bf16 --lengths lognormal:20:50 --tokens 200 --heads 1 "
      "--head-dim 16 --seconds 0.01");
  ASSERT_EQ(finished.status, 0) << finished.output;
  EXPECT_NE(finished.output.find("linear"), std::string::npos);
  EXPECT_EQ(finished.output.find("hstu_attention"), std::string::npos);
}

TEST(BenchOps, SaysWhatIsWrongWithAnOption) {
  const std::pair<const char*, const char*> cases[] = {
      {"--op nosuch", "no operator 'nosuch' to measure; there are hstu_attention, "},
      {"--lengths uniform:x", "lengths 'uniform:x': 'x' is not a positive whole number"},
      {"--lengths short", "unknown lengths 'short'; use kuairand, uniform:L or lognormal:MEAN:MAX"},
      {"--heads 0", "heads is 0; give at least 1"},
      {"--head-dim 300", "head-dim is 300; give 1 to 256"},
      {"--dtype f8", "unknown dtype 'f8' to measure; use f32, bf16 or all"},
      {"--bias some", "unknown bias 'some'; use none, position, time or both"},
      {"--tokens 0", "tokens is 0; give at least 1"},
      {"--max-length 0", "max-length is 0; give at least 1"},
      {"--op dedup_ids --dtype bf16 --seconds 0.01", "dedup_ids has no bf16 form"},
      {"--op dropout --tokens 10 --heads 1 --head-dim 8 --seconds 0 --json /nosuch/folder/x.json",
       "cannot write '/nosuch/folder/x.json': there is no folder '/nosuch/folder'"},
      {"--nosuch 1", "--nosuch"},
      {"--seconds -1", "seconds is -1; give 0 or more"},
      {"--threads -1", "--threads: '-1' is not a whole number from 0 on"},
  };
  for (const auto& [arguments, message] : cases) {
    const auto finished = run_program(std::string("bench ops ") + arguments);
    EXPECT_NE(finished.status, 0) << arguments;
    EXPECT_NE(finished.output.find(message), std::string::npos) << finished.output;
  }
}

}  // namespace
}  // namespace turbogr
