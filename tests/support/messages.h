// What a call or a command says.
#pragma once

#include <string>
#include <string_view>

#include "turbogr/core/check.h"

namespace turbogr::test {

// The text of the Error a call throws, or "" when it throws none.
template <class Function>
std::string message_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace turbogr::test
