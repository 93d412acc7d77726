// A signal made from a column of numbers: "rating>=4" is set where the rating is 4 or more.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace turbogr::data {

struct Label {
  enum class Test : std::uint8_t { kAtLeast, kAbove, kAtMost, kBelow, kEqual, kUnequal };

  std::string name;    // of the signal: the text without blanks
  std::string column;  // name, or number from 1
  Test test = Test::kAtLeast;
  float bound = 0;

  bool holds(float value) const;  // of an empty field, which is NaN, never
};

Label parse_label(std::string_view text);  // throws on anything else, with an example

}  // namespace turbogr::data
