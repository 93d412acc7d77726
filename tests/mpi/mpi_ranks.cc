// A rank that mpirun starts: checks every collective, or fails in the way asked for.
//   mpi_ranks collectives | throw RANK | stall RANK | die RANK
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "tests/support/rank_checks.h"
#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/dist/communicator.h"

namespace {

using turbogr::dist::Communicator;

void run_rank(Communicator& world, const std::string& mode, int guilty) {
  turbogr::test::check_collectives(world);
  if (mode == "collectives") {
    turbogr::test::check_groups(world);
    if (world.rank() == 0) std::printf("%d ranks agree\n", world.size());
    return;
  }
  if (world.rank() == guilty) {
    TGR_CHECK(mode != "throw", "the store has no column 'time'");
    if (mode == "die") std::raise(SIGKILL);
    std::this_thread::sleep_for(std::chrono::seconds(60));  // stall
  }
  world.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "collectives";
  const int guilty = argc > 2 ? std::atoi(argv[2]) : 0;
  turbogr::log::set_up("warning");
  // Only a stall should ever be waited for: a busy machine can hold a rank up for seconds.
  try {
    turbogr::dist::run_mpi([&](Communicator& world) { run_rank(world, mode, guilty); },
                           {.warn_seconds = 0.5, .timeout_seconds = mode == "stall" ? 2.0 : 60.0});
  } catch (const turbogr::Error& error) {
    std::fprintf(stderr, "turbogr: %s\n", error.what());
    return 1;
  }
  return 0;
}
