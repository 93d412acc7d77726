// Signals that ask a command to end, as an ordinary Error, so that the stack unwinds and temporary
// files go.
//
//   InterruptGuard guard;                 // in a command that writes
//   for (...) { check_interrupt(); ... }  // now and then, where the time goes
#pragma once

#include <string_view>

namespace turbogr::data {

// Catches SIGINT, SIGTERM, SIGHUP (unless nohup has it ignored) and SIGPIPE (nobody reads standard
// output any more) while it lives; then the old handlers are back. One at a time. Past a file-size
// limit (ulimit -f) a write fails, as on a full disk, instead of ending the process.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

bool interrupted();  // since the guard was set
std::string_view
interruption();          // by what: "SIGTERM", "standard output was closed"; empty: nothing
void check_interrupt();  // throws then; without a guard it never does

}  // namespace turbogr::data
