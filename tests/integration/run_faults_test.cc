// What happens to a run around it: folders that vanish, readers that come at a bad moment, signals.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/program.h"
#include "tests/support/training.h"

namespace turbogr {
namespace {

using test::contents_of;
using test::Outcome;
using test::run_command;

class RunFaults : public test::Training {
 protected:
  // Trains on and on while `meanwhile`, shell commands, begin when a checkpoint is there.
  Outcome disturb(const std::string& run, const std::string& meanwhile,
                  const std::string& more = "") const {
    return run_command("(while [ ! -e " + root_ + "/" + run +
                       "/checkpoints/latest ]; do sleep 0.05; done; " + meanwhile +
                       ") & timeout -k 5 100 " TGR_PROGRAM " " +
                       arguments(run,
                                 "--train.steps=1000000 --train.epochs=0 --checkpoint.every=5"
                                 " --log.progress=none " +
                                     more));
  }
};

TEST_F(RunFaults, ARunFolderThatIsReplacedIsLeftAlone) {
  const std::string run = root_ + "/run";
  const Outcome ended = disturb("run", "mv " + run + " " + root_ + "/moved; mkdir " + run);
  EXPECT_EQ(ended.status, 1) << ended.output;
  EXPECT_NE(ended.output.find("no longer the folder this run began in"), std::string::npos)
      << ended.output;
  EXPECT_TRUE(std::filesystem::is_empty(run));
  std::filesystem::remove(run);
  std::filesystem::rename(root_ + "/moved", run);
  const Outcome resumed = train("run", "--train.steps=1 --run.resume=true");
  EXPECT_EQ(resumed.status, 0) << resumed.output;
}

}  // namespace
}  // namespace turbogr
