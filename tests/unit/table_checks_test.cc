// Tables that cannot be made are said by their names, before anything is.
#include "turbogr/run/table_checks.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "turbogr/dist/topology.h"

namespace turbogr::run {
namespace {

using test::message_of;

train::RankOptions ranks_of(int world, int group) {
  train::RankOptions ranks;
  ranks.topology = dist::make_topology(std::vector<int>(static_cast<std::size_t>(world), 0), group);
  return ranks;
}

const std::vector<std::string> kNames = {"small", "q", "other"};
const std::vector<embedding::TableOptions> kTables = {
    {.rows = 10, .width = 16},
    {.rows = 1 << 20, .width = 16, .optimiser = embedding::SparseOptimiser::kSgd},
    {.rows = 1 << 10, .width = 16}};

TEST(TableChecks, TheLargestIsNamedWithItsBytesAndThoseThereAre) {
  const TablePlace alone = {Device::kCpu, ranks_of(1, 1)};
  EXPECT_EQ(too_large_tables(kNames, kTables, alone, std::size_t{1} << 30), "");
  const std::string said = too_large_tables(kNames, kTables, alone, std::size_t{48} << 20);
  for (const char* part : {"[tables.q] has 1,048,576 rows of 16 numbers", "take 64.0 MiB a rank",
                           "all tables together 64.2 MiB", "48.0 MiB of the memory of this machine",
                           "lower its rows"}) {
    EXPECT_NE(said.find(part), std::string::npos) << part << " in: " << said;
  }
  // Two ranks have a half each.
  EXPECT_EQ(too_large_tables(kNames, kTables, {Device::kCpu, ranks_of(2, 2)}, 48u << 20), "");
}

TEST(TableChecks, ARunIsRefusedAndADryOneWarned) {
  Config config;
  std::vector<embedding::TableOptions> tables = kTables;
  tables[1].rows = 2147483647;
  tables[1].width = 1 << 20;  // more than any host has
  const TablePlace place = {Device::kCpu, ranks_of(1, 1)};
  EXPECT_NE(message_of([&] { check_tables(config, kNames, tables, place); }).find("[tables.q] has"),
            std::string::npos);
  config.run.dry_run = true;
  EXPECT_EQ(message_of([&] { check_tables(config, kNames, tables, place); }), "");
}

}  // namespace
}  // namespace turbogr::run
