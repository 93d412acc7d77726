// The extension module _turbogr: the engine as the Python files of python/turbogr see it. What is
// public is there; names here may change.
#include <nanobind/nanobind.h>

#include "python/module/bindings.h"
#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/core/version.h"

namespace nb = nanobind;

namespace {

// The engine's lines go to Python's own log, turbogr's logger.
void log_to(const nb::object& logger) {
  static nb::object* held = nullptr;  // never freed: a line may come while the interpreter ends
  held = new nb::object(logger);
  turbogr::log::set_sink([](turbogr::log::Level level, std::string_view line) {
    if (Py_IsInitialized() == 0) return;
    const nb::gil_scoped_acquire gil;
    static constexpr const char* kMethods[] = {"debug", "info", "warning", "error"};
    try {
      held->attr(kMethods[static_cast<int>(level)])("%s", nb::str(line.data(), line.size()));
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("turbogr's log");
    }
  });
}

}  // namespace

NB_MODULE(_turbogr, module) {
  module.doc() = "turbogr's engine; use the package `turbogr`.";
  nb::exception<turbogr::Error>(module, "Error", PyExc_RuntimeError);
  module.attr("__version__") = turbogr::version();
  module.attr("__commit__") = turbogr::commit();
  module.def("log_to", &log_to, nb::arg("logger"));
  turbogr::python::bind_columns(module);
  turbogr::python::bind_data(module);
  turbogr::python::bind_train(module);
  turbogr::python::bind_model(module);
  turbogr::python::bind_ranker(module);
  turbogr::python::bind_ops(module);
}
