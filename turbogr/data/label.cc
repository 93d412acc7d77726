#include "turbogr/data/label.h"

#include <cmath>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/data/field.h"

namespace turbogr::data {
namespace {

// Longer ones first: ">" begins ">=".
constexpr std::pair<std::string_view, Label::Test> kTests[] = {
    {">=", Label::Test::kAtLeast}, {"<=", Label::Test::kAtMost}, {"==", Label::Test::kEqual},
    {"!=", Label::Test::kUnequal}, {">", Label::Test::kAbove},   {"<", Label::Test::kBelow},
    {"=", Label::Test::kEqual},
};

}  // namespace

bool Label::holds(float value) const {
  if (std::isnan(value)) return false;
  switch (test) {
    case Test::kAtLeast:
      return value >= bound;
    case Test::kAbove:
      return value > bound;
    case Test::kAtMost:
      return value <= bound;
    case Test::kBelow:
      return value < bound;
    case Test::kEqual:
      return value == bound;
    case Test::kUnequal:
      return value != bound;
  }
  return false;
}

Label parse_label(std::string_view text) {
  Label label;
  for (const char c : text) {
    if (c != ' ') label.name += c;
  }
  const std::string_view name = label.name;
  const std::size_t at = name.find_first_of("<>=!");
  bool known = false;
  for (const auto& [sign, test] : kTests) {
    if (known || at == std::string_view::npos || !name.substr(at).starts_with(sign)) continue;
    const std::string_view bound = name.substr(at + sign.size());
    label.column = name.substr(0, at);
    label.test = test;
    known = at > 0 && !bound.empty() && parse_float(bound, label.bound) == FieldError::kNone &&
            std::isfinite(label.bound);
    break;
  }
  TGR_CHECK(known, "--label '", printable(text, 80),
            "' is not a column, a sign (>=, >, <=, <, ==, !=) and a number; write it like "
            "\"rating>=4\"");
  return label;
}

}  // namespace turbogr::data
