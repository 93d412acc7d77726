#include "turbogr/run/config.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/output_file.h"
#include "turbogr/core/utf8.h"
#include "turbogr/run/config_entries.h"
#include "turbogr/run/config_keys.h"
#include "turbogr/run/idle_keys.h"
#include "turbogr/run/named_features.h"
#include "turbogr/run/store_defaults.h"
#include "turbogr/run/task_defaults.h"

namespace turbogr::run {
namespace {

std::string_view type_name(const ConfigValue& value) {
  static constexpr std::string_view kNames[] = {
      "true or false",           "a whole number",    "a number",         "a string",
      "a list of whole numbers", "a list of numbers", "a list of strings"};
  return kNames[value.index()];
}

std::string wanted(const ConfigKey& key, const ConfigValue& example) {
  std::string text(type_name(example));
  if (!key.rule.wanted.empty()) text += ", " + key.rule.wanted;
  return fmt::format("{} ({})", text, key.help);
}

std::string source_text(const toml::node& node) {
  std::ostringstream text;
  node.visit([&text](const auto& typed) { text << typed; });
  return text.str();
}

std::string_view found_type(const toml::node& node) {
  if (node.is_boolean()) return "a boolean";
  if (node.is_integer()) return "a whole number";
  if (node.is_floating_point()) return "a fractional number";
  if (node.is_string()) return "a string";
  if (node.is_array()) return "a list";
  if (node.is_table()) return "a table";
  return "a date or time";
}

// The node as the type of `like`, or nothing. A whole number passes for a real one, nothing else
// is converted.
std::optional<ConfigValue> value_of(const toml::node& node, const ConfigValue& like) {
  if (std::holds_alternative<bool>(like) && node.is_boolean()) {
    return ConfigValue(node.as_boolean()->get());
  }
  if (std::holds_alternative<std::int64_t>(like) && node.is_integer()) {
    return ConfigValue(node.as_integer()->get());
  }
  if (std::holds_alternative<double>(like) && node.is_number()) {
    return ConfigValue(*node.value<double>());
  }
  if (std::holds_alternative<std::string>(like) && node.is_string()) {
    return ConfigValue(node.as_string()->get());
  }
  if (std::holds_alternative<std::vector<std::int64_t>>(like) && node.is_array()) {
    std::vector<std::int64_t> list;
    for (const toml::node& element : *node.as_array()) {
      if (!element.is_integer()) return std::nullopt;
      list.push_back(element.as_integer()->get());
    }
    return ConfigValue(std::move(list));
  }
  if (std::holds_alternative<std::vector<double>>(like) && node.is_array()) {
    std::vector<double> list;
    for (const toml::node& element : *node.as_array()) {
      if (!element.is_number()) return std::nullopt;
      list.push_back(*element.value<double>());
    }
    return ConfigValue(std::move(list));
  }
  if (std::holds_alternative<std::vector<std::string>>(like) && node.is_array()) {
    std::vector<std::string> list;
    for (const toml::node& element : *node.as_array()) {
      if (!element.is_string()) return std::nullopt;
      list.push_back(element.as_string()->get());
    }
    return ConfigValue(std::move(list));
  }
  return std::nullopt;
}

ConfigKey find_key(const std::string& where, const std::string& name) {
  const auto& keys = config_keys();
  const auto found = std::find_if(keys.begin(), keys.end(),
                                  [&](const ConfigKey& key) { return key.name == name; });
  if (std::optional<ConfigKey> entry = entry_key(name)) return *std::move(entry);
  TGR_CHECK(found != keys.end(), where, ": unknown key '", name, "'; the nearest known one is '",
            nearest_config_key(name).name, "' (`turbogr config --keys` lists all)");
  return *found;
}

// A config on its way: the values so far, and who was given one.
struct Draft {
  Config config;
  NamedKeys named;
};

void assign(Draft& draft, const std::string& where, const std::string& name,
            const toml::node& node) {
  const ConfigKey key = find_key(where, name);
  const ConfigValue like = key.get(draft.config);
  const std::optional<ConfigValue> value = value_of(node, like);
  TGR_CHECK(value.has_value(), where, ": ", name, " = ", source_text(node), " is ",
            found_type(node), "; wanted: ", wanted(key, like));
  TGR_CHECK(key.rule.allows(*value), where, ": ", name, " = ", source_text(node),
            " is not allowed; wanted: ", wanted(key, like));
  if (const std::size_t dot = name.rfind('.'); entry_key(name)) {
    const std::size_t first = name.find('.');
    add_entry(draft.config, name.substr(0, first), name.substr(first + 1, dot - first - 1));
  }
  key.set(draft.config, *value);
  draft.named.insert(name);
}

bool is_section(std::string_view name) {
  const auto& keys = config_keys();
  return std::any_of(keys.begin(), keys.end(), [&](const ConfigKey& key) {
    return key.name.size() > name.size() && key.name.starts_with(name) &&
           key.name[name.size()] == '.';
  });
}

// TOML sorts keys by name; features come in the order they were written.
std::vector<std::pair<toml::key, const toml::node*>> in_order_of_the_file(
    const toml::table& table) {
  std::vector<std::pair<toml::key, const toml::node*>> entries;
  for (const auto& [key, node] : table) entries.emplace_back(key, &node);
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    const toml::source_position at = a.first.source().begin, other = b.first.source().begin;
    return at.line != other.line ? at.line < other.line : at.column < other.column;
  });
  return entries;
}

void assign_all(Draft& draft, std::string_view source, const std::string& prefix,
                const toml::table& table) {
  for (const auto& [key, value] : in_order_of_the_file(table)) {
    const toml::node& node = *value;
    const std::string name = prefix + std::string(key.str());
    const std::string where = fmt::format("{}:{}", source, key.source().begin.line);
    if (node.is_table() &&
        (prefix.empty() ? is_entry_section(name)
                        : is_entry_section(prefix.substr(0, prefix.size() - 1)))) {
      if (!prefix.empty())
        add_entry(draft.config, prefix.substr(0, prefix.size() - 1), name.substr(prefix.size()));
      assign_all(draft, source, name + ".", *node.as_table());
      continue;
    }
    if (node.is_table() && (is_section(name) || !node.as_table()->empty())) {
      const auto& keys = config_keys();
      const bool is_key = std::any_of(keys.begin(), keys.end(),
                                      [&](const ConfigKey& known) { return known.name == name; });
      if (!is_key) {
        assign_all(draft, source, name + ".", *node.as_table());
        continue;
      }
    }
    TGR_CHECK(!is_section(name), where, ": ", name, " = ", source_text(node), " is ",
              found_type(node), "; wanted: a section, [", name, "]");
    assign(draft, where, name, node);
  }
}

toml::table parse_toml(std::string_view text, std::string_view source) {
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    detail::throw_error(source, ":", error.source().begin.line,
                        ": not TOML: ", error.description());
  }
}

void apply(Draft& draft, const Override& change) {
  const std::string where = fmt::format("command line, --{}={}", change.key, change.value);
  const ConfigKey key = find_key(where, change.key);
  const ConfigValue like = key.get(draft.config);
  TGR_CHECK(is_utf8(change.value), where,
            ": the value is not UTF-8 text, and a run could not read its config again; give files "
            "and folders names in UTF-8");
  const bool text = std::holds_alternative<std::string>(like);
  const bool quoted =
      change.value.size() >= 2 && change.value.front() == '"' && change.value.back() == '"';
  if (text && !quoted) {
    assign(draft, where, change.key, toml::value<std::string>(change.value));
    return;
  }
  toml::table line;
  try {
    line = toml::parse("value = " + change.value);
  } catch (const toml::parse_error&) {
    detail::throw_error(where, ": '", change.value,
                        "' cannot be read; wanted: ", wanted(key, like));
  }
  TGR_CHECK(line.size() == 1, where, ": more than one value; wanted: ", wanted(key, like));
  assign(draft, where, change.key, *line.get("value"));
}

}  // namespace

ConfigArguments split_config_arguments(const std::vector<std::string>& arguments) {
  ConfigArguments split;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with("--")) {
      TGR_CHECK(split.path.empty(), "two config files were given, '", split.path, "' and '",
                argument, "'; give one, and change its keys with --a.b=c");
      split.path = argument;
      continue;
    }
    const std::size_t equals = argument.find('=');
    if (equals != std::string::npos) {
      split.overrides.push_back({argument.substr(2, equals - 2), argument.substr(equals + 1)});
      continue;
    }
    TGR_CHECK(i + 1 < arguments.size() && !arguments[i + 1].starts_with("--"), argument,
              " needs a value: write ", argument, "=VALUE");
    split.overrides.push_back({argument.substr(2), arguments[++i]});
  }
  return split;
}

namespace {

Draft read_draft(std::string_view text, std::string_view source,
                 const std::vector<Override>& overrides) {
  Draft draft;
  assign_all(draft, source, "", parse_toml(text, source));
  for (const Override& change : overrides) apply(draft, change);
  choose_for_task(draft.config, draft.named);
  return draft;
}

}  // namespace

Config parse_config(std::string_view text, std::string_view source,
                    const std::vector<Override>& overrides) {
  Config config = read_draft(text, source, overrides).config;
  resolve_config(config);
  return config;
}

LoadedConfig load_config_for_store(const std::string& path,
                                   const std::vector<Override>& overrides) {
  std::error_code ignored;
  TGR_CHECK(path.empty() || !std::filesystem::exists(path + "/manifest.json", ignored), "'", path,
            "' is a store, and a config file goes there; write --data.store=", path);
  Draft draft = read_draft(path.empty() ? "" : read_file(path), path, overrides);
  TGR_CHECK(!path.empty() || !draft.config.data.store.empty(),
            "neither a config file nor a store was given; name a file such as configs/demo.toml, "
            "or a store, as in --data.store=stores/mine: the rest is then chosen for it");
  LoadedConfig loaded;
  std::vector<std::string_view> decided;
  if (leaves_to_the_store(draft.config, draft.named)) {
    try {
      TGR_CHECK(!draft.config.data.store.empty(), "data.store is not named");
      const data::Store store(draft.config.data.store);
      decided =
          choose_for_store(draft.config, draft.named, size_of(store, draft.config.data.max_length));
      name_features(draft.config, store);
    } catch (const Error& error) {
      loaded.unread = error.what();
    }
  }
  resolve_config(draft.config);
  for (const std::string_view name : decided) {
    const ConfigKey key = find_key("store_defaults.cc", std::string(name));
    loaded.chosen.push_back(fmt::format("{} = {}", name, config_value_text(key.get(draft.config))));
  }
  loaded.config = std::move(draft.config);
  return loaded;
}

Config load_config(const std::string& path, const std::vector<Override>& overrides) {
  return load_config_for_store(path, overrides).config;
}

std::string config_text(const Config& config) {
  std::string text;
  std::string section;
  const auto add = [&](const ConfigKey& key) {
    const std::size_t dot = key.name.rfind('.');
    const std::string own = dot == std::string::npos ? "" : key.name.substr(0, dot);
    if (own != section) {
      section = own;
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    text += fmt::format("{} = {}\n", dot == std::string::npos ? key.name : key.name.substr(dot + 1),
                        config_value_text(key.get(config)));
  };
  for (const ConfigKey& key : config_keys()) add(key);
  for (const ConfigKey& key : entry_keys(config)) add(key);
  return text;
}

namespace {

// What the ranking task takes where a key is not named, if that is something else than retrieval
// does.
std::string ranking_text(const ConfigKey& key, const Config& defaults) {
  if (is_of_retrieval(key.name)) return "";
  const std::string_view chosen = how_chosen(key.name);
  const std::string_view rule = how_chosen(key.name, "ranking");
  if (!rule.empty()) return rule == chosen ? "" : std::string(rule);
  const std::string value = ranking_default(key.name);
  return value.empty() && !chosen.empty() ? config_value_text(key.get(defaults)) : value;
}

}  // namespace

std::string config_help() {
  const Config defaults;
  std::string text;
  const auto add = [&](const ConfigKey& key) {
    const std::string_view chosen = how_chosen(key.name);
    const std::string value =
        chosen.empty() ? config_value_text(key.get(defaults)) : "by the store";
    text += fmt::format("{:<24} {:<18} {}", key.name, value, key.help);
    if (!key.rule.wanted.empty()) text += fmt::format(" [{}]", key.rule.wanted);
    if (!chosen.empty()) text += fmt::format("; not named: {}", chosen);
    const std::string ranking = ranking_text(key, defaults);
    if (!ranking.empty()) text += fmt::format("; not named, ranking: {}", ranking);
    text += '\n';
  };
  for (const ConfigKey& key : config_keys()) add(key);
  for (const ConfigKey& key : entry_keys_like("")) add(key);
  return text;
}

std::vector<std::string> config_differences(const Config& was, const Config& is,
                                            std::string_view prefix) {
  std::vector<std::string> differences;
  std::set<std::string> compared;
  const auto compare = [&](const ConfigKey& key) {
    if (!key.name.starts_with(prefix) || !compared.insert(key.name).second) return;
    if (key.get(was) == key.get(is)) return;
    differences.push_back(fmt::format("{} is {}, was {}", key.name, config_value_text(key.get(is)),
                                      config_value_text(key.get(was))));
  };
  for (const ConfigKey& key : config_keys()) compare(key);
  for (const ConfigKey& key : entry_keys(was)) compare(key);
  for (const ConfigKey& key : entry_keys(is)) compare(key);
  const std::string order = entry_order(is), old_order = entry_order(was);
  if (differences.empty() && order != old_order &&
      is_entry_section(prefix.substr(0, prefix.find('.')))) {
    differences.push_back(fmt::format("the order is {}, was {}", order, old_order));
  }
  return differences;
}

}  // namespace turbogr::run
