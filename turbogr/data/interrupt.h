// Signals that ask a command to end, as an ordinary Error, so that the stack unwinds and temporary
// files go.
//
//   InterruptGuard guard;                 // in a command that writes
//   for (...) { check_interrupt(); ... }  // now and then, where the time goes
#pragma once

#include <functional>
#include <string_view>

namespace turbogr::data {

// Catches SIGINT, SIGTERM, SIGHUP (unless nohup has it ignored) and SIGPIPE (nobody reads standard
// output any more) while it lives; then the old handlers are back. Those made meanwhile add
// nothing: a command made of others knows of what stopped one of them. Leaves all signals alone on
// a thread that has an InterruptQuestion.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  bool watches_;  // the first of several does
};

// For a host that has its own signal handlers, such as Python: while it lives, this thread asks it
// whether to stop, and no guard touches a handler. It may be asked often and should answer fast;
// once it has said yes it is not asked again.
class InterruptQuestion {
 public:
  explicit InterruptQuestion(std::function<bool()> stop);
  ~InterruptQuestion();
  InterruptQuestion(const InterruptQuestion&) = delete;
  InterruptQuestion& operator=(const InterruptQuestion&) = delete;

 private:
  friend bool interrupted();
  std::function<bool()> stop_;
  bool stopped_ = false;
  InterruptQuestion* outer_;
};

bool interrupted();  // since the first guard was set, or as the question is answered
std::string_view
interruption();          // by what: "SIGTERM", "standard output was closed"; empty: nothing
void check_interrupt();  // throws then; without a guard or a question it never does

}  // namespace turbogr::data
