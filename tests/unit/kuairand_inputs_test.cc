#include "turbogr/data/kuairand_inputs.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"

namespace turbogr::data {
namespace {

using Paths = std::vector<std::filesystem::path>;

Paths paths_of(const std::vector<TableInput>& tables) {
  Paths paths;
  for (const TableInput& table : tables) paths.push_back(table.path);
  return paths;
}

class KuairandInputs : public ::testing::Test {
 protected:
  std::filesystem::path add(const std::string& name) {
    return test::write_file(folder_ / name, name.ends_with(".parquet") ? "PAR1" : "a,b\n");
  }
  PrepareOptions options_of(Paths inputs, int shards = 1) {
    return kuairand_options(
        {.format = LogFormat::kKuaiRand, .inputs = std::move(inputs), .shards = shards}, remarks_);
  }

  test::TemporaryFolder folder_;
  std::vector<std::string> remarks_;
};

TEST_F(KuairandInputs, TextIsLeftToTheReaderOfText) {
  const auto log = add("log_standard_pure.csv");
  add("user_features_pure.csv");
  const PrepareOptions options = options_of({folder_.path()});
  EXPECT_EQ(options.format, LogFormat::kKuaiRand);
  EXPECT_EQ(options.inputs, Paths{folder_.path()});
  EXPECT_TRUE(options.user_tables.empty());
}

TEST_F(KuairandInputs, ParquetBecomesLogsAndTables) {
  const auto second = add("log_standard_b.parquet");
  const auto first = add("log_random_a.parquet");
  const auto users = add("user_features_pure.parquet");
  const auto items = add("video_features_basic_pure.csv");
  add("video_features_statistic_pure.parquet");  // only where it is named
  PrepareOptions options = options_of({folder_.path()});
  EXPECT_EQ(options.format, LogFormat::kParquet);
  EXPECT_EQ(options.inputs, (Paths{first, second}));
  EXPECT_EQ(paths_of(options.user_tables), Paths{users});
  EXPECT_EQ(paths_of(options.item_tables), Paths{items});
  EXPECT_EQ(options.columns.user, "user_id");
  EXPECT_EQ(options.columns.item, "video_id");
  EXPECT_EQ(options.columns.time, "time_ms");

  options = options_of({folder_.path()}, 2);
  EXPECT_TRUE(options.user_tables.empty());
  ASSERT_EQ(remarks_.size(), 1u);
  EXPECT_NE(remarks_[0].find("a shard takes no tables"), std::string::npos) << remarks_[0];
}

TEST_F(KuairandInputs, TablesInParquetGoWithLogsOfText) {
  const auto log = add("log_standard_pure.csv");
  const auto users = add("user_features_pure.parquet");
  const PrepareOptions options = options_of({folder_.path()});
  EXPECT_EQ(options.format, LogFormat::kKuaiRand);
  EXPECT_EQ(options.inputs, Paths{log});
  EXPECT_EQ(paths_of(options.user_tables), Paths{users});
  EXPECT_TRUE(options.columns.user.empty());
}

TEST_F(KuairandInputs, RefusesTheSameInTwoFormsAndTwoForms) {
  const auto text = add("log_standard_pure.csv.gz");
  const auto columns = add("log_standard_pure.parquet");
  EXPECT_NE(test::message_of([&] { options_of({folder_.path()}); }).find("the same in two forms"),
            std::string::npos);
  EXPECT_NE(test::message_of([&] {
              options_of({text, columns});
            }).find("one is Parquet"),
            std::string::npos);
  const auto table = add("user_features_pure.parquet");
  EXPECT_NE(test::message_of([&] { options_of({table}); }).find("feature tables only"),
            std::string::npos);
}

}  // namespace
}  // namespace turbogr::data
