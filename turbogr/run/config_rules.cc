// What values of keys may be (config_keys.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "turbogr/run/config_keys.h"

namespace turbogr::run::rules {

ConfigRule anything() {
  return {[](const ConfigValue&) { return true; }, ""};
}

ConfigRule at_least(std::int64_t low) {
  return {[low](const ConfigValue& value) { return std::get<std::int64_t>(value) >= low; },
          fmt::format("at least {}", low)};
}

ConfigRule between(std::int64_t low, std::int64_t high) {
  return {[low, high](const ConfigValue& value) {
            const std::int64_t number = std::get<std::int64_t>(value);
            return number >= low && number <= high;
          },
          fmt::format("{} to {}", low, high)};
}

// Reals are always finite.
ConfigRule positive() {
  return {[](const ConfigValue& value) {
            const double number = std::get<double>(value);
            return std::isfinite(number) && number > 0.0;
          },
          "more than 0"};
}

ConfigRule not_negative() {
  return {[](const ConfigValue& value) {
            const double number = std::get<double>(value);
            return std::isfinite(number) && number >= 0.0;
          },
          "0 or more"};
}

ConfigRule finite() {
  return {[](const ConfigValue& value) { return std::isfinite(std::get<double>(value)); },
          "finite"};
}

ConfigRule up_to(double high) {
  return {[high](const ConfigValue& value) {
            const double number = std::get<double>(value);
            return number >= 0.0 && number <= high;
          },
          fmt::format("from 0 to {}", high)};
}

ConfigRule rising() {
  return {[](const ConfigValue& value) {
            const auto& list = std::get<std::vector<double>>(value);
            const auto held = [](double number) {
              return std::abs(number) <= std::numeric_limits<float>::max();
            };
            const auto falls = [](double a, double b) {
              return static_cast<float>(a) >= static_cast<float>(b);
            };
            return std::all_of(list.begin(), list.end(), held) &&
                   std::adjacent_find(list.begin(), list.end(), falls) == list.end();
          },
          "finite, each larger than the one before"};
}

ConfigRule below_one() {
  return {[](const ConfigValue& value) {
            const double number = std::get<double>(value);
            return number >= 0.0 && number < 1.0;
          },
          "from 0 up to, not including, 1"};
}

ConfigRule one_of(std::initializer_list<std::string_view> names) {
  const std::vector<std::string_view> known(names);
  std::string list;
  for (std::size_t i = 0; i < known.size(); ++i) {
    list += i == 0 ? "" : i + 1 == known.size() ? " or " : ", ";
    list += known[i];
  }
  return {[known](const ConfigValue& value) {
            return std::find(known.begin(), known.end(), std::get<std::string>(value)) !=
                   known.end();
          },
          list};
}

}  // namespace turbogr::run::rules
