// Runs the real program through a shell.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "tests/support/paths.h"

namespace turbogr::test {

struct Outcome {
  int status = -1;     // exit status; 128 + signal when one ended it
  std::string output;  // standard output and error together
};

inline bool has(const Outcome& outcome, std::string_view part) {
  return outcome.output.find(part) != std::string::npos;
}

inline Outcome run_command(const std::string& command) {
  Outcome outcome;
  std::FILE* pipe = ::popen(("{ " + command + "; } 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  char block[4096];
  for (std::size_t count = 0; (count = std::fread(block, 1, sizeof block, pipe)) > 0;) {
    outcome.output.append(block, count);
  }
  const int status = ::pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

// `prefix` goes before the program's name: "ulimit -v 524288;" or "cat log |".
inline Outcome run_program(const std::string& arguments, const std::string& prefix = "") {
  return run_command(prefix + " " + program() + " " + arguments);
}

}  // namespace turbogr::test
