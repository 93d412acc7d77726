// The text of the Error a call throws, or "" when it throws none.
#pragma once

#include <string>

#include "turbogr/core/check.h"

namespace turbogr::test {

template <class Function>
std::string message_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace turbogr::test
