#include "turbogr/run/rank_cores.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <vector>

namespace turbogr::run {
namespace {

cpu_set_t cores_of(pid_t process) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(process, sizeof cores, &cores) != 0) CPU_SET(0, &cores);
  return cores;
}

std::string text_of(const cpu_set_t& cores) {
  std::string text;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &cores)) text += fmt::format("{} ", core);
  }
  return text;
}

}  // namespace

RankCores rank_cores(dist::Communicator& world) {
  const cpu_set_t own = cores_of(0);
  const cpu_set_t launcher = cores_of(::getppid());
  RankCores cores = {.own = CPU_COUNT(&own),
                     .together = CPU_COUNT(&own),
                     .ranks = 1,
                     .launcher = CPU_COUNT(&launcher)};
  if (world.size() == 1) return cores;
  const std::vector<std::string> lists = world.all_gather_text(text_of(own));
  const std::vector<int>& nodes = world.nodes();
  const int here = nodes[static_cast<std::size_t>(world.rank())];
  cpu_set_t together;
  CPU_ZERO(&together);
  cores.ranks = 0;
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    if (nodes[rank] != here) continue;
    ++cores.ranks;
    std::istringstream list(lists[rank]);
    for (int core = 0; list >> core;) CPU_SET(core, &together);
  }
  cores.together = CPU_COUNT(&together);
  return cores;
}

int threads_for_rank(std::int64_t asked, const RankCores& cores) {
  if (asked > 0) return static_cast<int>(asked);
  return std::max(1, std::min(cores.own, cores.together / cores.ranks));
}

std::string unused_cores(const RankCores& cores) {
  if (cores.ranks == 1 || 2 * cores.together > cores.launcher) return "";
  return fmt::format(
      "the {} ranks of this machine may use {} of its {} cores: the launcher has bound them. If "
      "nothing else needs the others, start it with `mpirun --bind-to none`",
      cores.ranks, cores.together, cores.launcher);
}

}  // namespace turbogr::run
