// The recipes of deploy/: they parse, start what they say, and name keys that the program knows.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

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

// As much of YAML as the recipe has: maps and lists by indentation, a plain or quoted word a line.
class Yaml {
 public:
  explicit Yaml(const std::string& text) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      const std::size_t begin = line.find_first_not_of(' ');
      if (begin == std::string::npos || line[begin] == '#') continue;
      lines_.push_back({begin, line.substr(begin)});
    }
  }

  // Why it is not such a file; empty: it is.
  std::string fault() const {
    const std::regex known("(- )*([A-Za-z0-9./-]+:( .+)?|-?-?[A-Za-z0-9_./=-]+|\"[0-9]+\")");
    std::size_t most = 0;
    for (const Line& line : lines_) {
      if (!std::regex_match(line.text, known)) return "not understood: " + line.text;
      if (line.indent > most || line.indent % 2 != 0) return "indented by chance: " + line.text;
      const std::size_t dash = line.text.starts_with("- ") ? 2 : 0;
      const bool opens = line.text.ends_with(":");
      most = line.indent + dash + (opens ? 2 : 0);
    }
    return "";
  }

  // The word at the end of a path of keys; of lists the first entry.
  std::string at(const std::vector<std::string>& path) const { return words(path).at(0); }
  // The words of the list there.
  std::vector<std::string> words(const std::vector<std::string>& path) const {
    std::size_t from = 0, indent = 0;
    for (const std::string& key : path) {
      const std::size_t found = find(key, from, indent);
      if (found == lines_.size()) return {"no " + key};
      const Line& line = lines_[found];
      const std::string entry = without_dash(line);
      if (entry != key + ":") return {entry.substr(key.size() + 2)};
      indent = line.indent + (line.text.starts_with("- ") ? 3 : 1);
      from = found + 1;
    }
    std::vector<std::string> all;
    for (; from < lines_.size() && lines_[from].indent >= indent; ++from) {
      std::string word = without_dash(lines_[from]);
      std::erase(word, '"');
      all.push_back(word);
    }
    return all;
  }

 private:
  struct Line {
    std::size_t indent;
    std::string text;
  };
  static std::string without_dash(const Line& line) {
    return line.text.starts_with("- ") ? line.text.substr(2) : line.text;
  }
  // Inside of what is indented by `indent` at least.
  std::size_t find(const std::string& key, std::size_t from, std::size_t indent) const {
    for (; from < lines_.size() && lines_[from].indent >= indent; ++from) {
      const std::string entry = without_dash(lines_[from]);
      if (entry == key + ":" || entry.starts_with(key + ": ")) return from;
    }
    return lines_.size();
  }

  std::vector<Line> lines_;
};

TEST(Deploy, KubernetesHasARankForEveryGpu) {
  const Yaml job(text_of("kubernetes.yaml"));
  EXPECT_EQ(job.fault(), "");
  EXPECT_EQ(job.at({"kind"}), "MPIJob");
  const std::vector<std::string> worker = {"spec", "mpiReplicaSpecs", "Worker"};
  const auto of_worker = [&](const std::vector<std::string>& more) {
    std::vector<std::string> path = worker;
    path.insert(path.end(), more.begin(), more.end());
    return job.at(path);
  };
  const int gpus = std::stoi(
      of_worker({"template", "spec", "containers", "resources", "limits", "nvidia.com/gpu"}));
  EXPECT_EQ(std::stoi(job.at({"spec", "slotsPerWorker"})), gpus);
  const std::vector<std::string> command = job.words(
      {"spec", "mpiReplicaSpecs", "Launcher", "template", "spec", "containers", "command"});
  const auto ranks = std::find(command.begin(), command.end(), "-n");
  ASSERT_LT(ranks + 1, command.end());
  EXPECT_EQ(std::stoi(ranks[1]), std::stoi(of_worker({"replicas"})) * gpus);
  EXPECT_NE(std::find(command.begin(), command.end(), "--run.resume=true"), command.end());
}

// What reads it sees what is wrong.
TEST(Deploy, ABrokenRecipeIsSeen) {
  const std::string good = text_of("kubernetes.yaml");
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos);
    return Yaml(text.replace(at, from.size(), to)).fault();
  };
  EXPECT_NE(broken("  name: turbogr", "    name: turbogr"), "");
  EXPECT_NE(broken("  name: turbogr", "  name turbogr"), "");
  EXPECT_NE(broken("  name: turbogr", "\tname: turbogr"), "");
  EXPECT_NE(broken("  slotsPerWorker: 8", "   slotsPerWorker: 8"), "");
}

}  // namespace
}  // namespace turbogr
