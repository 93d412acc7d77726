// `turbogr help`, and what the program makes of a slip of the finger.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/support/program.h"

namespace turbogr {
namespace {

using test::has;
using test::Outcome;
using test::run_program;

TEST(Help, KnowsEveryCommandAndWhatWasMeant) {
  const Outcome all = run_program("help");
  EXPECT_EQ(all.status, 0);
  EXPECT_TRUE(has(all, "Usage: turbogr [OPTIONS] SUBCOMMAND")) << all.output;
  EXPECT_EQ(run_program("help eval").output, run_program("eval --help").output);
  EXPECT_EQ(run_program("help data prepare").output, run_program("data prepare --help").output);
  const Outcome none = run_program("help data prepair");
  EXPECT_EQ(none.status, 1);
  EXPECT_TRUE(
      has(none, "there is no command 'prepair'; did you mean 'prepare'? `turbogr help` lists them"))
      << none.output;
  const Outcome nothing_near = run_program("help xyzzy");
  EXPECT_TRUE(has(nothing_near, "there is no command 'xyzzy'; `turbogr help` lists them"))
      << nothing_near.output;
  for (const auto& [arguments, part] :
       {std::pair{"evla", "there is no command 'evla'; did you mean 'eval'?"},
        {"data stat x", "there is no command 'stat'; did you mean 'stats'?"},
        {"eval --chekpoint x", "there is no option '--chekpoint'; did you mean '--checkpoint'?"},
        {"recommend --checkpoint x --al", "there is no option '--al'; did you mean '--all'?"},
        {"tune --data.store=x --trails=3",
         "there is no option '--trails'; did you mean '--trials'?"},
        {"config x.toml --key", "there is no option '--key'; did you mean '--keys'?"},
        {"eval --checkpoint x --frobnicate=3", "there is no option '--frobnicate'\n"}}) {
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_TRUE(has(outcome, part)) << outcome.output;
  }
  // A key is no slip, though it has no dot.
  EXPECT_TRUE(has(run_program("tune --task=nosuch"), "task = 'nosuch' is not allowed"));
}

}  // namespace
}  // namespace turbogr
