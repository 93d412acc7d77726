// Keys of what a config has any number of, each under a name: tables.NAME.rows, features.NAME.from,
// tasks.NAME.signals. They are keys like those of config_keys.h once the name is known.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/run/config_keys.h"

namespace turbogr::run {

// "tables", "features" or "tasks".
bool is_entry_section(std::string_view section);

// Of "features.tags.from" the key, whether or not the config has such a feature: setting it makes
// one. Nothing where it is no key of an entry.
std::optional<ConfigKey> entry_key(std::string_view name);

// Makes the entry "features.tags", all defaults, where there is none. Throws on a name that is more
// than letters, digits, - and _.
void add_entry(Config& config, const std::string& section, const std::string& name);

// All keys of the entries there are, in order.
std::vector<ConfigKey> entry_keys(const Config& config);
// All keys with the names that `name` has: candidates for what was meant.
std::vector<ConfigKey> entry_keys_like(std::string_view name);

// "features.a, features.b": in which order they are.
std::string entry_order(const Config& config);

}  // namespace turbogr::run
