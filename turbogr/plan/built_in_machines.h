// The files of turbogr/plan/machines, inside the program: an installed one has no source tree
// beside it.
#pragma once

#include <span>
#include <string_view>

namespace turbogr::plan {

struct BuiltInMachine {
  std::string_view name;
  std::string_view text;  // JSON
};

std::span<const BuiltInMachine> built_in_machines();

}  // namespace turbogr::plan
