// `turbogr bench`: hands over to turbogr-bench, which has the baselines to measure against.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "turbogr/core/check.h"

namespace turbogr::apps {
namespace {

namespace fs = std::filesystem;

// Beside this program, as in a build folder, or where packages put helpers.
fs::path bench_program() {
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path beside = folder / "turbogr-bench";
  const fs::path installed = folder.parent_path() / "libexec" / "turbogr" / "turbogr-bench";
  for (const fs::path& path : {beside, installed}) {
    if (fs::exists(path)) return path;
  }
  detail::throw_error("`turbogr bench` needs the program '", beside.string(),
                      "', which is not there; `make bench` in the source tree builds it");
}

void run_bench(const std::vector<std::string>& words) {
  const std::string program = bench_program().string();
  std::vector<char*> arguments = {const_cast<char*>("turbogr-bench")};  // execv changes nothing
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execv(program.c_str(), arguments.data());
  detail::throw_error("cannot start '", program, "': ", std::strerror(errno));
}

}  // namespace

void add_bench(Command& program) {
  Command* command =
      program.add_subcommand("bench", "Measure; every figure beside a peak and a baseline");
  command->take_everything();
  command->callback([command] { run_bench(command->remaining()); });
}

}  // namespace turbogr::apps
