#include "turbogr/core/last_words.h"

#include <execinfo.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <exception>
#include <new>
#include <string_view>

namespace turbogr {
namespace {

// What runs in a signal handler: system calls and the stack, no allocation, no locks.

// Reads "7f00-7fff r--s ..." and says whether the address is inside.
bool holds(std::string_view line, std::uintptr_t address) {
  std::uintptr_t bounds[2] = {0, 0};
  std::size_t at = 0;
  for (std::uintptr_t& bound : bounds) {
    for (; at < line.size() && line[at] != '-' && line[at] != ' '; ++at) {
      const char digit = line[at];
      bound =
          bound * 16 + static_cast<std::uintptr_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    ++at;
  }
  return bounds[0] <= address && address < bounds[1];
}

// The file mapped at the address, written to `path`; empty when there is none.
std::string_view mapped_file(std::uintptr_t address, char (&path)[4096]) {
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return {};
  char block[4096];
  std::size_t length = 0;  // of the line so far, in `path`
  for (ssize_t count = 0; (count = ::read(maps, block, sizeof block)) > 0;) {
    for (const char* next = block; next != block + count; ++next) {
      if (*next != '\n') {
        if (length < sizeof path) path[length++] = *next;
        continue;
      }
      const std::string_view line(path, length);
      length = 0;
      if (!holds(line, address)) continue;
      ::close(maps);
      const std::size_t slash = line.find('/');
      return slash == std::string_view::npos ? std::string_view() : line.substr(slash);
    }
  }
  ::close(maps);
  return {};
}

void say(std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

// Set before the handler is.
std::atomic<bool> exits = false;

extern "C" void explain(int number, siginfo_t* info, void*) {
  static std::atomic_flag explaining;
  while (explaining.test_and_set()) ::pause();  // another thread is about to end the process
  char path[4096];
  const std::string_view file = mapped_file(reinterpret_cast<std::uintptr_t>(info->si_addr), path);
  if (file.empty()) {  // not ours to explain: as without a handler
    std::signal(number, SIG_DFL);
    return;
  }
  say("turbogr: '");
  say(file);
  say("' was cut short while it was in use, or its disk is full or has failed; ");
  say("restore it and start again (a training run: with --run.resume=true)\n");
  if (exits) ::_exit(1);
  std::signal(number, SIG_DFL);  // the same look again ends the host
}

void install_explain() {
  struct sigaction action = {};
  action.sa_sigaction = explain;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

struct sigaction of_sigbus() {
  struct sigaction action = {};
  sigaction(SIGBUS, nullptr, &action);
  return action;
}

std::terminate_handler before = nullptr;

// Other exceptions that reach std::terminate are bugs: they end as they did before.
void end_for_memory() {
  try {
    if (std::current_exception()) throw;
  } catch (const std::bad_alloc&) {
    say("turbogr: out of memory; give it less to do at once, or more memory\n");
    ::_exit(1);
  } catch (...) {
  }
  before();
}

}  // namespace

void leave_last_words() {
  before = std::set_terminate(end_for_memory);
  // The C library looks for its unwinder at the first exception that crosses it, and needs memory
  // for that: better now than when an exception says that there is none.
  void* frame = nullptr;
  ::backtrace(&frame, 1);
  exits = true;
  install_explain();
  std::signal(SIGXFSZ, SIG_IGN);  // the write that is too much fails, and says so
}

LastWordsOfHost::LastWordsOfHost() {
  const struct sigaction now = of_sigbus();
  installed_ = (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL;
  if (installed_) install_explain();
}

LastWordsOfHost::~LastWordsOfHost() {
  const struct sigaction now = of_sigbus();
  const bool still_ours = (now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == explain;
  if (installed_ && still_ours) std::signal(SIGBUS, SIG_DFL);
}

}  // namespace turbogr
