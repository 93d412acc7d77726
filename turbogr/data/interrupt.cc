#include "turbogr/data/interrupt.h"

#include <array>
#include <csignal>

#include "turbogr/core/check.h"

namespace turbogr::data {
namespace {

struct Watched {
  int number;
  std::string_view name;
};
constexpr std::array<Watched, 4> kWatched = {{{SIGINT, "SIGINT"},
                                              {SIGTERM, "SIGTERM"},
                                              {SIGHUP, "SIGHUP: the terminal was closed"},
                                              {SIGPIPE, "standard output was closed"}}};

// A signal handler reaches nothing but globals.
volatile std::sig_atomic_t signal_seen = 0;
std::array<struct sigaction, kWatched.size()> old_actions;
struct sigaction old_file_size;

extern "C" void note_signal(int number) { signal_seen = number; }

}  // namespace

InterruptGuard::InterruptGuard() {
  signal_seen = 0;
  struct sigaction action = {};
  action.sa_handler = note_signal;
  sigemptyset(&action.sa_mask);
  // No SA_RESTART: a read that waits on a terminal or a pipe must come back.
  for (std::size_t i = 0; i < kWatched.size(); ++i) {
    sigaction(kWatched[i].number, &action, &old_actions[i]);
    const bool by_nohup = kWatched[i].number == SIGHUP && old_actions[i].sa_handler == SIG_IGN;
    if (by_nohup) sigaction(SIGHUP, &old_actions[i], nullptr);
  }
  action.sa_handler = SIG_IGN;
  sigaction(SIGXFSZ, &action, &old_file_size);
}

InterruptGuard::~InterruptGuard() {
  for (std::size_t i = 0; i < kWatched.size(); ++i) {
    sigaction(kWatched[i].number, &old_actions[i], nullptr);
  }
  sigaction(SIGXFSZ, &old_file_size, nullptr);
  signal_seen = 0;
}

bool interrupted() { return signal_seen != 0; }

std::string_view interruption() {
  for (const Watched& watched : kWatched) {
    if (watched.number == signal_seen) return watched.name;
  }
  return "";
}

void check_interrupt() {
  TGR_CHECK(!interrupted(), "interrupted (", interruption(),
            "); what was written so far is removed");
}

}  // namespace turbogr::data
