// The registry behind config.h: each key's name, where its value lives, what is allowed, what it
// means. Parsing, printing, help and comparison all walk this one list.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "turbogr/run/config.h"

namespace turbogr::run {

using ConfigValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                                 std::vector<double>, std::vector<std::string>>;

// What a value may be, beyond its type. `wanted` goes into messages: "at least 1".
struct ConfigRule {
  std::function<bool(const ConfigValue&)> allows;
  std::string wanted;
};

struct ConfigKey {
  std::string name;  // "model.layers"
  std::function<ConfigValue(const Config&)> get;
  std::function<void(Config&, ConfigValue)> set;  // the value has get's type
  ConfigRule rule;
  std::string_view help;
};

// In the order of printing: by section, then as in config.h.
const std::vector<ConfigKey>& config_keys();

// Fresh rows: what is far larger overflows as soon as it is multiplied.
inline constexpr double kLargestInit = 1000.0;

// What values may be; config_entries.cc has keys, too.
namespace rules {
ConfigRule anything();
ConfigRule at_least(std::int64_t low);
ConfigRule between(std::int64_t low, std::int64_t high);
ConfigRule positive();
ConfigRule not_negative();
ConfigRule finite();
ConfigRule up_to(double high);  // from 0
ConfigRule rising();            // a list of numbers, each of which f32 can hold
ConfigRule below_one();
ConfigRule one_of(std::initializer_list<std::string_view> names);
}  // namespace rules

// The key a user most likely meant: few edits away, or the same last name in another section.
ConfigKey nearest_config_key(std::string_view name);

// As TOML: true, 3, 0.001, "text", [10, 50].
std::string config_value_text(const ConfigValue& value);

// What keys demand of each other; also fills in values that others imply.
void resolve_config(Config& config);

}  // namespace turbogr::run
