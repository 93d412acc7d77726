#include "turbogr/data/interrupt.h"

#include <array>
#include <csignal>
#include <utility>

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
bool watching = false;  // one guard does, the first
std::array<struct sigaction, kWatched.size()> old_actions;

thread_local InterruptQuestion* question = nullptr;

extern "C" void note_signal(int number) { signal_seen = number; }

}  // namespace

InterruptGuard::InterruptGuard() : watches_(question == nullptr && !watching) {
  if (!watches_) return;
  watching = true;
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
}

InterruptGuard::~InterruptGuard() {
  if (!watches_) return;
  watching = false;
  for (std::size_t i = 0; i < kWatched.size(); ++i) {
    sigaction(kWatched[i].number, &old_actions[i], nullptr);
  }
  signal_seen = 0;
}

InterruptQuestion::InterruptQuestion(std::function<bool()> stop)
    : stop_(std::move(stop)), outer_(std::exchange(question, this)) {}

InterruptQuestion::~InterruptQuestion() { question = outer_; }

bool interrupted() {
  if (question == nullptr) return signal_seen != 0;
  question->stopped_ = question->stopped_ || question->stop_();
  return question->stopped_;
}

std::string_view interruption() {
  if (question != nullptr) return interrupted() ? "the caller asked for it" : "";
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
