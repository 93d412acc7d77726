#include "apps/same_command.h"

#include <cstddef>
#include <fstream>
#include <iterator>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/core/escape.h"

namespace turbogr::apps {
namespace {

// As the process was started; without the program, whose path may differ between machines.
std::string words_of_this_process() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  std::string words;
  for (std::size_t at = all.find('\0'); at < all.size(); at = all.find('\0', at + 1)) {
    const std::size_t end = all.find('\0', at + 1);
    if (end == std::string::npos) break;
    words += (words.empty() ? "" : " ") + all.substr(at + 1, end - at - 1);
  }
  return words;
}

}  // namespace

void check_same_command(dist::Communicator& world, const std::string& name, SameCommand what) {
  if (world.size() == 1) return;
  const std::string own = what == SameCommand::kName ? name : words_of_this_process();
  const std::vector<std::string> all = world.all_gather_text(own);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    TGR_CHECK(all[rank] == all[0], "rank ", rank, " was started as `turbogr ", escaped(all[rank]),
              "`, rank 0 as `turbogr ", escaped(all[0]),
              "`; start all ranks with the same command");
  }
}

}  // namespace turbogr::apps
