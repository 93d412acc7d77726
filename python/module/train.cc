// Training from Python: the program's own loop, its figures handed to a callback.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/module/bindings.h"
#include "python/module/host.h"
#include "turbogr/core/last_words.h"
#include "turbogr/core/log.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/run/config.h"
#include "turbogr/run/training_run.h"

namespace turbogr::python {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

std::vector<run::Override> overrides_of(const Pairs& pairs) {
  std::vector<run::Override> overrides;
  for (const auto& [key, value] : pairs) overrides.push_back({key, value});
  return overrides;
}

nb::dict dictionary_of(const run::MetricRecord& record) {
  nb::dict values;
  values["step"] = record.step;
  values["epoch"] = record.epoch;
  if (!record.split.empty()) values["split"] = record.split;
  for (const auto& [name, value] : record.values) values[name.c_str()] = value;
  return values;
}

// Hands records to Python; what it answers and raises ends the run after a checkpoint.
class Listener {
 public:
  explicit Listener(nb::object callback) : callback_(std::move(callback)) {}

  void hear(const run::MetricRecord& record) {
    const nb::gil_scoped_acquire gil;
    if (callback_.is_none() || error_) return;
    try {
      const nb::object answer = callback_(dictionary_of(record));
      stopped_ = stopped_ || nb::cast<bool>(answer);
    } catch (nb::python_error& error) {
      interrupted_ = error.matches(PyExc_KeyboardInterrupt);
      if (!interrupted_) error_.emplace(error);
      stopped_ = true;
    }
  }
  bool stopped() const { return stopped_; }
  bool interrupted() const { return interrupted_; }  // Ctrl-C while the callback ran
  std::optional<nb::python_error>& error() { return error_; }

 private:
  nb::object callback_;
  std::optional<nb::python_error> error_;
  bool stopped_ = false;
  bool interrupted_ = false;
};

// How it ended, and the run's folder.
std::pair<std::string, std::string> train(const std::string& path, const Pairs& overrides,
                                          const std::string& command, nb::object on_record) {
  Interrupts interrupts;
  Listener listener(std::move(on_record));
  std::string folder;
  run::RunEnd end = run::RunEnd::kFinished;
  std::exception_ptr failure;
  {
    const nb::gil_scoped_release release;
    const data::InterruptQuestion question([&] { return listener.stopped() || interrupts.stop(); });
    const LastWordsOfHost last_words;
    try {
      const run::LoadedConfig loaded = run::load_config_for_store(path, overrides_of(overrides));
      for (const std::string& chosen : loaded.chosen)
        log::debug("chosen for the store: {}", chosen);
      folder = loaded.config.run.dir;
      const std::unique_ptr<dist::Communicator> alone = dist::make_self();
      end = run::run_training(
          loaded.config, command, *alone,
          {.quiet = true, .progress = false, .on_record = [&](const run::MetricRecord& record) {
             listener.hear(record);
           }});
    } catch (...) {
      failure = std::current_exception();
    }
  }
  if (listener.error()) throw nb::python_error(*listener.error());
  // A run that was saved has done what Ctrl-C asks for.
  if (interrupts.error() && (failure || end != run::RunEnd::kInterrupted)) {
    throw nb::python_error(*interrupts.error());
  }
  if (failure) std::rethrow_exception(failure);
  const char* how = end == run::RunEnd::kFinished                   ? "finished"
                    : listener.stopped() && !listener.interrupted() ? "stopped"
                                                                    : "interrupted";
  return {how, folder};
}

}  // namespace

void bind_train(nb::module_& module) {
  module.def("train", &train, nb::arg("path"), nb::arg("overrides"), nb::arg("command"),
             nb::arg("on_record").none(),
             "A run to its end; returns (finished, stopped or interrupted; its folder).");
  module.def(
      "config_text",
      [](const std::string& path, const Pairs& overrides) {
        return run::config_text(run::load_config_for_store(path, overrides_of(overrides)).config);
      },
      nb::arg("path"), nb::arg("overrides"), "The resolved configuration as TOML.");
  module.def("config_keys", &run::config_help, "Every key of a configuration, with its meaning.");
}

}  // namespace turbogr::python
