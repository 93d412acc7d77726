// The recipes of deploy/: they parse, start what they say, and name keys that the program knows.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "tests/support/paths.h"
#include "tests/support/program.h"

namespace turbogr {
namespace {

using test::has;
using test::run_command;

const std::string kDeploy = test::source_dir() + "/deploy/";

std::string text_of(const std::string& name) {
  std::ifstream in(kDeploy + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Deploy, NamesKeysTheProgramKnows) {
  const std::string keys = test::run_program("config --keys").output;
  for (const auto& entry : std::filesystem::directory_iterator(kDeploy)) {
    const std::string text = text_of(entry.path().filename().string());
    const std::regex key("--([a-z]+\\.[a-z_]+)=");
    int found = 0;
    for (std::sregex_iterator each(text.begin(), text.end(), key), end; each != end; ++each) {
      ++found;
      EXPECT_NE(keys.find((*each)[1].str()), std::string::npos) << entry << ": " << each->str();
    }
    EXPECT_GT(found, 0) << entry;
  }
}

TEST(Deploy, ScriptsParseAndAskForWhatIsMissing) {
  for (const std::string name : {"slurm.sbatch", "hosts.sh"}) {
    const test::Outcome checked = run_command("bash -n " + kDeploy + name);
    EXPECT_EQ(checked.status, 0) << checked.output;
    const test::Outcome bare = run_command("bash " + kDeploy + name);
    EXPECT_NE(bare.status, 0);
    EXPECT_TRUE(has(bare, "usage:")) << bare.output;
  }
}

TEST(Deploy, HostsStartARankForEverySlot) {
  const test::Outcome shown =
      run_command("TGR_MPIRUN=echo bash " + kDeploy + "hosts.sh a,b,c 4 run.toml --train.steps=9");
  EXPECT_EQ(shown.status, 0);
  EXPECT_TRUE(has(shown,
                  "--host a:4,b:4,c:4 -n 12 --bind-to none --mca oob_tcp_keepalive_time 10 "
                  "--mca oob_tcp_keepalive_intvl 5 --mca oob_tcp_keepalive_probes 3 -x NCCL_DEBUG "
                  "turbogr train run.toml --run.resume=true --train.steps=9"))
      << shown.output;
}

// Directives stand before the first command, or Slurm does not read them.
TEST(Deploy, SlurmReadsItsDirectives) {
  const std::string text = text_of("slurm.sbatch");
  const std::set<std::string> known = {"job-name",      "nodes",         "ntasks-per-node",
                                       "gpus-per-node", "cpus-per-task", "signal",
                                       "requeue",       "output"};
  const std::regex directive("#SBATCH --([a-z-]+)");
  const std::size_t commands = text.find("set -euo");
  int found = 0;
  for (std::sregex_iterator each(text.begin(), text.end(), directive), end; each != end; ++each) {
    ++found;
    EXPECT_TRUE(known.count((*each)[1].str()) == 1) << each->str();
    EXPECT_LT(static_cast<std::size_t>(each->position()), commands);
  }
  EXPECT_EQ(found, static_cast<int>(known.size()));
}

TEST(Deploy, KubernetesHasARankForEveryGpu) {
  if (run_command("python3 -c 'import yaml'").status != 0) {
    GTEST_SKIP() << "python3 has no yaml here";
  }
  const test::Outcome read = run_command(
      "python3 -c '\nimport sys, yaml\njob = yaml.safe_load(open(sys.argv[1]))\n"
      "spec = job[\"spec\"]\nworker = spec[\"mpiReplicaSpecs\"][\"Worker\"]\n"
      "gpus = worker[\"template\"][\"spec\"][\"containers\"][0][\"resources\"][\"limits\"]"
      "[\"nvidia.com/gpu\"]\n"
      "command = spec[\"mpiReplicaSpecs\"][\"Launcher\"][\"template\"][\"spec\"][\"containers\"][0]"
      "[\"command\"]\n"
      "assert gpus == spec[\"slotsPerWorker\"]\n"
      "assert int(command[command.index(\"-n\") + 1]) == worker[\"replicas\"] * gpus\n' " +
      kDeploy + "kubernetes.yaml");
  EXPECT_EQ(read.status, 0) << read.output;
}

}  // namespace
}  // namespace turbogr
