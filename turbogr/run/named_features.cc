#include "turbogr/run/named_features.h"

#include <cctype>
#include <set>
#include <string>
#include <utility>

#include "turbogr/run/feature_setup.h"

namespace turbogr::run {
namespace {

// A store's names may be longer and of other letters than those of a config.
constexpr std::size_t kLongestMadeName = 56;

std::string name_for(const std::string& text) {
  std::string name;
  for (const char c : text.substr(0, kLongestMadeName)) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' ? c : '_';
  }
  return name;
}

std::string unique_name(const std::string& wanted, std::set<std::string>& taken) {
  std::string name = wanted;
  for (int i = 2; !taken.insert(name).second; ++i) name = wanted + "_" + std::to_string(i);
  return name;
}

void add_feature(Config& config, std::set<std::string>& taken, const std::string& name,
                 const std::string& from) {
  FeatureConfig feature;
  feature.name = unique_name(name_for(name), taken);
  feature.from = from;
  config.features.push_back(std::move(feature));
}

void add_columns(Config& config, std::set<std::string>& taken, const data::Store& store,
                 bool of_items_alone) {
  for (const data::Feature& feature : store.manifest().features) {
    if (of_items_alone && feature.owner != data::FeatureOwner::kItem) continue;
    add_feature(config, taken, feature.name,
                std::string(name_of(feature.owner)) + "." + feature.name);
  }
}

}  // namespace

void name_features(Config& config, const data::Store& store) {
  std::set<std::string> taken;
  if (!config.ranks()) {
    const bool wanted = config.features.empty() && config.model.features == "store";
    if (wanted) add_columns(config, taken, store, /*of_items_alone=*/true);
    return;
  }
  if (config.features.empty()) {
    add_feature(config, taken, "user", "user");
    add_feature(config, taken, "item", "item");
    add_columns(config, taken, store, /*of_items_alone=*/false);
  }
  // Remembered with the run: another store has another mean.
  for (FeatureConfig& feature : config.features) {
    if (feature.number != "normalised" || feature.sd > 0) continue;
    const data::NumberScale scale = *sample_feature(config, feature, store).scale;
    feature.mean = scale.mean;
    feature.sd = scale.sd;
  }
  if (!config.tasks.empty()) return;
  taken.clear();
  for (const std::string& signal : store.manifest().signals) {
    TaskConfig task;
    task.name = unique_name(name_for(signal), taken);
    task.signals = {signal};
    config.tasks.push_back(std::move(task));
  }
}

}  // namespace turbogr::run
