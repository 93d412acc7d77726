// The parts of the module, one source each.
#pragma once

#include <nanobind/nanobind.h>

namespace turbogr::python {

namespace nb = nanobind;

void bind_columns(nb::module_& module);  // Arrow streams out of buffers
void bind_data(nb::module_& module);     // prepare, stores
void bind_train(nb::module_& module);    // runs, configurations
void bind_model(nb::module_& module);    // what a run has learnt
void bind_ranker(nb::module_& module);   // the same of the ranking task
void bind_ops(nb::module_& module);      // operators on arrays

}  // namespace turbogr::python
