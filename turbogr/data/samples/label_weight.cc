#include "turbogr/data/samples/label_weight.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/nearest_name.h"

namespace turbogr::data {
namespace {

std::string nearest_of(const std::string& name, const std::vector<std::string>& known) {
  const std::string nearest = nearest_name(name, known);
  return nearest.empty() ? "" : "the nearest is '" + nearest + "', and ";
}

// None: it is no such test.
std::vector<LabelTest> number_tests(const std::string& condition) {
  try {
    std::vector<LabelTest> tests = parse_label(condition).tests;
    const bool numbers = std::none_of(tests.begin(), tests.end(),
                                      [](const LabelTest& test) { return test.of_text; });
    return numbers ? tests : std::vector<LabelTest>();
  } catch (const Error&) {
    return {};
  }
}

std::span<const float> checked_weights(const Store& store, const std::string& name) {
  const std::span<const float> weights = store.numbers(name);
  for (std::size_t event = 0; event < weights.size(); ++event) {
    TGR_CHECK(
        !(weights[event] < 0) && !std::isinf(weights[event]), "weight_by = \"", name, "\": event ",
        event, " has ", weights[event],
        " there; a weight is a finite number that is not below 0, so prepare a column of such");
  }
  return weights;
}

}  // namespace

LabelWeight::LabelWeight(const Store& store, const std::vector<std::string>& where,
                         const std::string& by) {
  for (const std::string& condition : where) add_condition(store, condition);
  TGR_CHECK((with_ & without_) == 0,
            "where asks for a signal and for its absence; no event has both");
  if (!by.empty()) by_ = checked_weights(store, by);
}

void LabelWeight::add_condition(const Store& store, const std::string& condition) {
  const std::vector<std::string>& signals = store.manifest().signals;
  const auto mask_of = [&](std::string_view name) {
    const auto found = std::find(signals.begin(), signals.end(), name);
    return found == signals.end() ? 0 : 1u << (found - signals.begin());
  };
  // A signal's name may begin with ! or be spelt like a test: it comes first.
  if (const std::uint32_t mask = mask_of(condition)) {
    with_ |= mask;
    return;
  }
  const bool negated = condition.starts_with('!');
  const std::string name = negated ? condition.substr(1) : condition;
  if (const std::uint32_t mask = mask_of(name)) {
    without_ |= mask;
    return;
  }
  std::vector<LabelTest> tests = number_tests(condition);
  TGR_CHECK(!tests.empty(), "where: '", condition,
            "' is no signal and no test of a number, such as \"duration>=7\"; ",
            nearest_of(name, signals), "there are the signals ",
            fmt::format("{}", fmt::join(signals, ", ")));
  for (LabelTest& test : tests) {
    const std::span<const float> numbers = store.numbers(test.column);
    tests_.push_back({std::move(test), numbers});
  }
}

float LabelWeight::of(std::int64_t event, std::uint32_t signals) const {
  if ((signals & with_) != with_ || (signals & without_) != 0) return 0;
  const auto at = static_cast<std::size_t>(event);
  for (const Test& each : tests_) {
    if (each.test.of(each.numbers[at]) != LabelVerdict::kSet) return 0;
  }
  if (by_.empty()) return 1;
  return std::isnan(by_[at]) ? 0 : by_[at];
}

}  // namespace turbogr::data
