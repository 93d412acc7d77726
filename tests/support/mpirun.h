// Starts ranks on this machine by mpirun, as root too and on any number of cores; bounded in time.
#pragma once

#include <string>

#include "tests/support/program.h"

namespace turbogr::test {

inline Outcome mpirun(int ranks, const std::string& command, int seconds = 100) {
  return run_command("timeout -k 5 " + std::to_string(seconds) +
                     " mpirun --allow-run-as-root --oversubscribe --bind-to none -n " +
                     std::to_string(ranks) + " " + command);
}

}  // namespace turbogr::test
