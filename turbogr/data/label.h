// A signal made from other columns of a log: "rating>=4" is set where the rating is 4 or more,
// "event==purchase" where the event is that text, "skip=event==listen&!played>=50", a signal named
// skip, where the event is a listen and what was played is less than 50, or missing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace turbogr::data {

// A label is the worst of its tests.
enum class LabelVerdict : std::uint8_t { kSet, kMissing, kNotSet };

struct LabelTest {
  enum class Sign : std::uint8_t { kAtLeast, kAbove, kAtMost, kBelow, kEqual, kUnequal };

  std::string column;  // name, or number from 1
  Sign sign = Sign::kAtLeast;
  bool negated = false;  // set where the test does not hold, and where there is no value
  bool of_text = false;  // compared with `text`, else with `bound`
  std::string text;
  float bound = 0;

  LabelVerdict of(float value) const;             // NaN: there is none
  LabelVerdict of(std::string_view value) const;  // empty: there is none
};

struct Label {
  std::string name;  // as given, or the tests without blanks around their parts
  std::vector<LabelTest> tests;
};

Label parse_label(std::string_view text);  // throws on anything else, with an example

std::vector<std::string> columns_of(const Label& label);  // that it asks, each once

}  // namespace turbogr::data
