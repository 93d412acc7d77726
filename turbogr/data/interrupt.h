// SIGINT and SIGTERM as an ordinary Error, so that the stack unwinds and temporary files go.
//
//   InterruptGuard guard;                 // in a command that writes
//   for (...) { check_interrupt(); ... }  // now and then, where the time goes
#pragma once

namespace turbogr::data {

// Catches the two signals while it lives; then the old handlers are back. One at a time. Past a
// file-size limit (ulimit -f) a write fails, as on a full disk, instead of ending the process.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

bool interrupted();      // since the guard was set
void check_interrupt();  // throws then; without a guard it never does

}  // namespace turbogr::data
