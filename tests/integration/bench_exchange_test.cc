#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/mpirun.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/dist/communicator.h"

namespace turbogr {
namespace {

TEST(BenchExchange, ManyTablesTakeAsManyCollectivesAsOne) {
  if (!dist::built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  const test::TemporaryFolder folder;
  const std::string out = (folder / "row.json").string();
  double bytes_before = 0;
  for (const int tables : {1, 5}) {
    const test::Outcome finished = test::mpirun(
        2, test::program() + " bench exchange --rows 500 --width 8 --tokens 50 --negatives 5 " +
               "--steps 2 --tables " + std::to_string(tables) + " --json " + out);
    ASSERT_EQ(finished.status, 0) << finished.output;
    const nlohmann::json row = nlohmann::json::parse(std::ifstream(out)).at(0);
    EXPECT_EQ(row.at("tables"), tables);
    EXPECT_EQ(row.at("collectives"), 4);  // counts, ids, rows, gradients
    EXPECT_GT(row.at("step_ms"), 0);
    EXPECT_GT(row.at("number_ms"), 0);
    EXPECT_GT(row.at("route_ms"), 0);
    EXPECT_GT(row.at("update_ms"), 0);
    const double bytes = row.at("all_to_all_mb");
    EXPECT_GT(bytes, 3 * bytes_before);
    bytes_before = bytes;
  }
}

}  // namespace
}  // namespace turbogr
