// What the engine must know of the interpreter it runs in: it lets go of the GIL while it works,
// leaves the interpreter's signal handlers alone and asks it now and then whether Ctrl-C was
// pressed.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "turbogr/data/interrupt.h"

namespace turbogr::python {

namespace nb = nanobind;

// Asks Python at most twenty times a second. Python runs its handlers on its main thread only, so
// elsewhere the answer is always no.
class Interrupts {
 public:
  bool stop() {
    const auto now = std::chrono::steady_clock::now();
    if (error_ || now - asked_ < std::chrono::milliseconds(50)) return error_.has_value();
    asked_ = now;
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) error_.emplace();
    return error_.has_value();
  }
  // What a handler raised, KeyboardInterrupt as a rule.
  std::optional<nb::python_error>& error() { return error_; }

 private:
  std::chrono::steady_clock::time_point asked_ = std::chrono::steady_clock::now();
  std::optional<nb::python_error> error_;
};

// Work without the GIL that Ctrl-C ends: KeyboardInterrupt, after what was begun is cleared away.
template <class Work>
auto interruptible(Work&& work) {
  Interrupts interrupts;
  std::optional<decltype(work())> result;
  std::exception_ptr failure;
  {
    const nb::gil_scoped_release release;
    const data::InterruptQuestion question([&] { return interrupts.stop(); });
    try {
      result.emplace(work());
    } catch (...) {
      failure = std::current_exception();
    }
  }
  if (interrupts.error()) throw nb::python_error(*interrupts.error());
  // Ctrl-C may have come after Python was last asked, and be why the work failed.
  if (failure && PyErr_CheckSignals() != 0) throw nb::python_error();
  if (failure) std::rethrow_exception(failure);
  return *std::move(result);
}

}  // namespace turbogr::python
