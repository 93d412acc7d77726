#include "turbogr/run/vocabularies.h"

#include <string>

#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/data/manifest.h"

namespace turbogr::run {
namespace {

using nlohmann::json;

// Codes as ids themselves have no column.
std::string sum_of_columns(const data::Manifest& manifest,
                           std::initializer_list<std::string> names) {
  std::string sum;
  for (const std::string& name : names) {
    const data::FileEntry* column = manifest.column(name);
    if (column != nullptr) sum += (sum.empty() ? "" : " ") + column->checksum;
  }
  return sum;
}

// A model knows what was done by bits, the signals' places in the store.
void check_signals(const json& was, const checkpoint::Checkpoint& saved, const data::Store& store) {
  if (!was.contains("signals")) return;  // an older program's
  const auto names = [](const json& signals) {
    std::string text;
    for (const json& name : signals) {
      text += (text.empty() ? "" : ",") + (name.is_string() ? name.get<std::string>() : "?");
    }
    return text.empty() ? "none" : text;
  };
  const json is = store.manifest().signals;
  TGR_CHECK(was.at("signals") == is, "checkpoint '", saved.folder(),
            "' was trained on a store with the signals ", names(was.at("signals")),
            " in this order, and '", store.folder().string(), "' has ", names(is),
            "; prepare it with the same signals in the same order, or train on this one");
}

}  // namespace

json vocabularies_of(const data::Store& store) {
  const data::Manifest& manifest = store.manifest();
  json sums = {{"user", sum_of_columns(manifest, {"user_ids", "user_id_offsets", "user_id_text"})}};
  for (const data::Feature& feature : manifest.features) {
    sums[std::string(name_of(feature.owner)) + "." + feature.name] =
        sum_of_columns(manifest, {feature.column("text_offsets"), feature.column("text")});
  }
  sums["signals"] = manifest.signals;
  return sums;
}

void check_vocabularies(const checkpoint::Checkpoint& saved, const Config& config,
                        const data::Store& store) {
  const bool reads_signals = config.ranks() || config.model.actions;
  if (config.features.empty() && !reads_signals) return;
  const json was = saved.state().value("vocabularies", json());
  if (!was.is_object()) {
    log::warn(
        "checkpoint '{}' does not say which users and values its rows are of (an older "
        "program's); use it with the store it was trained on only",
        saved.folder());
    return;
  }
  if (reads_signals) check_signals(was, saved, store);
  const json is = vocabularies_of(store);
  const auto check = [&](const std::string& source) {
    if (!was.contains(source) || !is.contains(source)) return;  // a clock, or named by who sets up
    TGR_CHECK(was.at(source) == is.at(source), "checkpoint '", saved.folder(),
              "' was trained on a store in which the codes of '", source,
              "' stand for others than in '", store.folder().string(),
              "'; give the store it was trained on, or train on this one");
  };
  for (const FeatureConfig& feature : config.features) {
    check(feature.from);
    for (const std::string& source : feature.cross) check(source);
  }
}

}  // namespace turbogr::run
