#include "turbogr/run/config_entries.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <limits>
#include <utility>

#include "turbogr/core/check.h"

namespace turbogr::run {
namespace {

using rules::anything;
using rules::at_least;
using rules::between;
using rules::finite;
using rules::not_negative;
using rules::one_of;
using rules::positive;
using rules::rising;
using rules::up_to;

constexpr std::array<std::string_view, 3> kEntrySections = {"tables", "features", "tasks"};

template <class Entry>
const Entry* find_entry(const std::vector<Entry>& entries, std::string_view name) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const Entry& entry) { return entry.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

template <class Entry>
Entry& find_or_add(std::vector<Entry>& entries, const std::string& name) {
  if (const Entry* found = find_entry(entries, name)) return entries[found - entries.data()];
  entries.emplace_back().name = name;
  return entries.back();
}

// A table's name is a part of its file's, which a file system limits to 255 letters.
constexpr std::size_t kLongestName = 64;
constexpr std::string_view kNameWanted =
    "a name has 1 to 64 letters, digits, - and _, and nothing else";

bool is_entry_name(std::string_view name) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kLongestName &&
         std::all_of(name.begin(), name.end(), plain);
}

ConfigRule entry_name_or_none() {
  return {[](const ConfigValue& value) {
            const std::string& name = std::get<std::string>(value);
            return name.empty() || is_entry_name(name);
          },
          std::string(kNameWanted)};
}

// One field of an entry, under the entry's name.
template <class Entry, class Field>
ConfigKey entry_field(std::vector<Entry> Config::*entries, const std::string& section,
                      const std::string& entry, std::string_view field, Field Entry::*member,
                      ConfigRule rule, std::string_view help) {
  return {section + "." + entry + "." + std::string(field),
          [=](const Config& config) {
            const Entry* found = find_entry(config.*entries, entry);
            return ConfigValue(found == nullptr ? Entry{}.*member : found->*member);
          },
          [=](Config& config, ConfigValue value) {
            find_or_add(config.*entries, entry).*member = std::get<Field>(std::move(value));
          },
          std::move(rule), help};
}

std::vector<ConfigKey> keys_of_table(const std::string& name) {
  const auto key = [&](auto... rest) {
    return entry_field(&Config::tables, "tables", name, rest...);
  };
  return {
      key("rows", &TableConfig::rows, between(0, std::numeric_limits<std::int32_t>::max()),
          "rows; 0: as many as the features that read it need"),
      key("width", &TableConfig::width, at_least(0),
          "width of a row; 0: that of all tables, model.width (ranking: model.embedding)"),
      key("dtype", &TableConfig::dtype, one_of({"", "f32", "bf16", "f16"}),
          "of the rows; bf16 and f16 take half the memory; not named: embedding.dtype"),
      key("optimiser", &TableConfig::optimiser, one_of({"", "adamw", "adagrad", "sgd"}),
          "not named: embedding.optimiser"),
      key("init", &TableConfig::init, up_to(kLargestInit),
          "fresh rows have the spread of uniform numbers between -init and init; 0: as "
          "embedding.init says (ranking: 1 / sqrt(rows))"),
  };
}

std::vector<ConfigKey> keys_of_feature(const std::string& name) {
  const auto key = [&](auto... rest) {
    return entry_field(&Config::features, "features", name, rest...);
  };
  return {
      key("from", &FeatureConfig::from, anything(),
          "what it reads: user or item (the id), user.NAME, item.NAME or event.NAME (a feature of "
          "the store), clock.hour or clock.day"),
      key("cross", &FeatureConfig::cross, anything(),
          "instead of from: two or three of those, hashed to one row of the table"),
      key("table", &FeatureConfig::table, entry_name_or_none(),
          "table of its rows, which features may share; not named: one of the feature's name"),
      key("place", &FeatureConfig::place, one_of({"auto", "prefix", "item"}),
          "a token before the history (ranking: as of the first target), or a part of every "
          "event; auto: item for what belongs to the item or the event, else prefix"),
      key("pooling", &FeatureConfig::pooling, one_of({"mean", "sum"}), "of the rows of a bag"),
      key("most", &FeatureConfig::most, between(1, 65536), "of a bag: its first so many are read"),
      key("edges", &FeatureConfig::edges, rising(),
          "of a number: where buckets begin; none: by powers of two"),
      key("unit", &FeatureConfig::unit, positive(),
          "of a number by powers of two: bucket 1 + floor(log2(1 + x / unit))"),
      key("buckets", &FeatureConfig::buckets, between(1, 65536),
          "of a number by powers of two: the last one holds all that is larger"),
      key("number", &FeatureConfig::number, one_of({"buckets", "normalised"}),
          "of a number: a row for its bucket, or (ranking) (x - mean) / sd times one row plus "
          "another, which the model's layers go on from"),
      key("mean", &FeatureConfig::mean, finite(), "of a number that is normalised"),
      key("sd", &FeatureConfig::sd, not_negative(),
          "of a number that is normalised; 0: mean and sd are those of the store, of events those "
          "that train"),
      key("rate", &FeatureConfig::rate, anything(),
          "ranking: a task or a signal. The feature is a number then: how often earlier events of "
          "the same user, item, category or cross had it, as log-odds above those of all"),
      key("prior", &FeatureConfig::prior, positive(),
          "of a rate: it is drawn to that of all by so many events"),
      key("delay", &FeatureConfig::delay, between(0, 1000000000),
          "of a rate: an event is counted when so many seconds have passed"),
      key("least", &FeatureConfig::least, at_least(0),
          "ranking, prefix: of a sample with fewer events the row is zeros"),
  };
}

std::vector<ConfigKey> keys_of_task(const std::string& name) {
  const auto key = [&](auto... rest) {
    return entry_field(&Config::tasks, "tasks", name, rest...);
  };
  return {
      key("signals", &TaskConfig::signals, anything(),
          "signals of the store any of which makes a target positive; none named: the one of the "
          "task's name"),
      key("number", &TaskConfig::number, anything(),
          "instead: a column of numbers to predict, by squared error"),
      key("weight", &TaskConfig::weight, positive(), "factor on the task's loss"),
      key("where", &TaskConfig::where, anything(),
          "targets whose labels count, in training and figures: those that have all these signals "
          "(\"!NAME\": have it not) and pass these tests of numbers (\"NAME>=7\"); none: all"),
      key("weight_by", &TaskConfig::weight_by, anything(),
          "a column of numbers: how much each target's label counts; not named: 1"),
      key("base", &TaskConfig::base, anything(),
          "features with a rate: the logit starts from their sum, and what is learnt is added"),
  };
}

std::vector<ConfigKey> keys_of(std::string_view section, const std::string& name) {
  if (section == kEntrySections[0]) return keys_of_table(name);
  return section == kEntrySections[1] ? keys_of_feature(name) : keys_of_task(name);
}

// "features", "tags", "from"; false where the name has other parts.
bool split_entry(std::string_view name, std::string_view& section, std::string& entry) {
  const std::size_t first = name.find('.'), last = name.rfind('.');
  if (first == std::string_view::npos || first == last) return false;
  section = name.substr(0, first);
  entry = std::string(name.substr(first + 1, last - first - 1));
  return entry.find('.') == std::string::npos;
}

template <class Work>
void for_each_entry(const Config& config, const Work& work) {
  for (const TableConfig& table : config.tables) work("tables", table.name);
  for (const FeatureConfig& feature : config.features) work("features", feature.name);
  for (const TaskConfig& task : config.tasks) work("tasks", task.name);
}

}  // namespace

bool is_entry_section(std::string_view section) {
  return std::find(kEntrySections.begin(), kEntrySections.end(), section) != kEntrySections.end();
}

std::optional<ConfigKey> entry_key(std::string_view name) {
  std::string_view section;
  std::string entry;
  if (!split_entry(name, section, entry) || !is_entry_section(section)) return std::nullopt;
  for (ConfigKey& key : keys_of(section, entry)) {
    if (key.name == name) return std::move(key);
  }
  return std::nullopt;
}

void add_entry(Config& config, const std::string& section, const std::string& name) {
  TGR_CHECK(is_entry_name(name), "[", section, ".", name.substr(0, kLongestName),
            name.size() > kLongestName ? "..." : "", "]: ", kNameWanted,
            "; what it reads can be named in a key");
  if (section == kEntrySections[0]) find_or_add(config.tables, name);
  if (section == kEntrySections[1]) find_or_add(config.features, name);
  if (section == kEntrySections[2]) find_or_add(config.tasks, name);
}

std::vector<ConfigKey> entry_keys(const Config& config) {
  std::vector<ConfigKey> keys;
  for_each_entry(config, [&](std::string_view section, const std::string& name) {
    for (ConfigKey& key : keys_of(section, name)) keys.push_back(std::move(key));
  });
  return keys;
}

std::vector<ConfigKey> entry_keys_like(std::string_view name) {
  std::string_view section;
  std::string entry;
  if (!split_entry(name, section, entry)) entry = "NAME";
  std::vector<ConfigKey> keys;
  for (const std::string_view each : kEntrySections) {
    for (ConfigKey& key : keys_of(each, entry)) keys.push_back(std::move(key));
  }
  return keys;
}

std::string entry_order(const Config& config) {
  std::string order;
  for_each_entry(config, [&](std::string_view section, const std::string& name) {
    order += (order.empty() ? "" : ", ") + std::string(section) + "." + name;
  });
  return order;
}

}  // namespace turbogr::run
