#include "turbogr/data/label.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/data/features/feature_text.h"
#include "turbogr/data/field.h"

namespace turbogr::data {
namespace {

using Sign = LabelTest::Sign;

constexpr std::string_view kSignLetters = "<>=!";

// Longer ones first: ">" begins ">=".
constexpr std::pair<std::string_view, Sign> kSigns[] = {
    {">=", Sign::kAtLeast}, {"<=", Sign::kAtMost}, {"==", Sign::kEqual}, {"!=", Sign::kUnequal},
    {">", Sign::kAbove},    {"<", Sign::kBelow},   {"=", Sign::kEqual},
};

LabelVerdict verdict(const LabelTest& test, bool holds) {
  return holds != test.negated ? LabelVerdict::kSet : LabelVerdict::kNotSet;
}

LabelVerdict verdict_without_value(const LabelTest& test) {
  return test.negated ? LabelVerdict::kSet : LabelVerdict::kMissing;
}

struct SpelledTest {
  LabelTest test;
  std::string name;
};

// None: it is no test.
std::optional<SpelledTest> parse_test(std::string_view text) {
  SpelledTest spelled;
  LabelTest& test = spelled.test;
  text = trimmed(text);
  if (text.starts_with('!')) {
    test.negated = true;
    text.remove_prefix(1);
  }
  const std::size_t at = text.find_first_of(kSignLetters);
  if (at == std::string_view::npos) return std::nullopt;
  for (const auto& [sign, kind] : kSigns) {
    if (!text.substr(at).starts_with(sign)) continue;
    const std::string_view bound = trimmed(text.substr(at + sign.size()));
    test.column = trimmed(text.substr(0, at));
    test.sign = kind;
    if (test.column.empty() || bound.empty()) return std::nullopt;
    test.of_text = parse_float(bound, test.bound) != FieldError::kNone;
    test.text = bound;
    const bool comparable = test.of_text ? (kind == Sign::kEqual || kind == Sign::kUnequal) &&
                                               kSignLetters.find(bound[0]) == std::string_view::npos
                                         : std::isfinite(test.bound);
    if (!comparable) return std::nullopt;
    spelled.name = (test.negated ? "!" : "") + test.column;
    spelled.name.append(sign).append(bound);
    return spelled;
  }
  return std::nullopt;
}

// "skip" of "skip=event==listen"; "rating=4" and "rating==4" are tests.
std::string_view name_before_tests(std::string_view text) {
  const std::size_t at = text.find_first_of("<>=!&");
  if (at == 0 || at == std::string_view::npos || text[at] != '=') return {};
  const std::string_view rest = text.substr(at + 1);
  const bool named =
      !rest.starts_with('=') && rest.find_first_of(kSignLetters) != std::string_view::npos;
  return named ? text.substr(0, at) : std::string_view();
}

}  // namespace

LabelVerdict LabelTest::of(float value) const {
  if (std::isnan(value)) return verdict_without_value(*this);
  switch (sign) {
    case Sign::kAtLeast:
      return verdict(*this, value >= bound);
    case Sign::kAbove:
      return verdict(*this, value > bound);
    case Sign::kAtMost:
      return verdict(*this, value <= bound);
    case Sign::kBelow:
      return verdict(*this, value < bound);
    case Sign::kEqual:
      return verdict(*this, value == bound);
    case Sign::kUnequal:
      return verdict(*this, value != bound);
  }
  return LabelVerdict::kNotSet;
}

LabelVerdict LabelTest::of(std::string_view value) const {
  if (value.empty()) return verdict_without_value(*this);
  return verdict(*this, (value == text) == (sign == Sign::kEqual));
}

Label parse_label(std::string_view text) {
  Label label;
  const std::string_view name = name_before_tests(text);
  label.name = trimmed(name);
  bool known = true;
  std::string spelling;
  for (std::size_t begin = name.data() == nullptr ? 0 : name.size() + 1; known;) {
    const std::size_t end = std::min(text.find('&', begin), text.size());
    std::optional<SpelledTest> test = parse_test(text.substr(begin, end - begin));
    known = test.has_value();
    if (!known) break;
    spelling += (spelling.empty() ? "" : "&") + test->name;
    label.tests.push_back(std::move(test->test));
    begin = end + 1;
    if (end == text.size()) break;
  }
  TGR_CHECK(
      known, "--label '", printable(text, 80),
      "' is not a column, a sign (>=, >, <=, <, ==, !=) and a number or, with == and !=, a "
      "text; write it like \"rating>=4\", \"event==purchase\" or, of several and with a name, "
      "\"bought=event==purchase&price>0\"");
  if (label.name.empty()) label.name = std::move(spelling);
  return label;
}

std::vector<std::string> columns_of(const Label& label) {
  std::vector<std::string> columns;
  for (const LabelTest& test : label.tests) {
    const bool fresh = std::find(columns.begin(), columns.end(), test.column) == columns.end();
    if (fresh) columns.push_back(test.column);
  }
  return columns;
}

}  // namespace turbogr::data
