// Runs the real program and keeps what it said.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include "turbogr/core/check.h"

namespace turbogr::test {

struct Finished {
  int status = -1;
  std::string output;  // both streams
};

inline Finished run_command(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  TGR_CHECK(pipe != nullptr, "cannot run '", command, "'");
  Finished finished;
  std::array<char, 4096> part;
  while (const std::size_t count = std::fread(part.data(), 1, part.size(), pipe)) {
    finished.output.append(part.data(), count);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) finished.status = WEXITSTATUS(status);
  return finished;
}

inline Finished run_program(const std::string& arguments) {
  return run_command(std::string(TGR_PROGRAM) + " " + arguments);
}

}  // namespace turbogr::test
