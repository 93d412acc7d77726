#include "turbogr/data/interrupt.h"

#include <csignal>

#include "turbogr/core/check.h"

namespace turbogr::data {
namespace {

// A signal handler reaches nothing but globals.
volatile std::sig_atomic_t signal_seen = 0;
struct sigaction old_interrupt;
struct sigaction old_terminate;
struct sigaction old_file_size;

extern "C" void note_signal(int number) { signal_seen = number; }

}  // namespace

InterruptGuard::InterruptGuard() {
  signal_seen = 0;
  struct sigaction action = {};
  action.sa_handler = note_signal;
  sigemptyset(&action.sa_mask);
  // No SA_RESTART: a read that waits on a terminal or a pipe must come back.
  sigaction(SIGINT, &action, &old_interrupt);
  sigaction(SIGTERM, &action, &old_terminate);
  action.sa_handler = SIG_IGN;
  sigaction(SIGXFSZ, &action, &old_file_size);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &old_interrupt, nullptr);
  sigaction(SIGTERM, &old_terminate, nullptr);
  sigaction(SIGXFSZ, &old_file_size, nullptr);
  signal_seen = 0;
}

bool interrupted() { return signal_seen != 0; }

void check_interrupt() {
  TGR_CHECK(!interrupted(), "interrupted; what was written so far is removed");
}

}  // namespace turbogr::data
