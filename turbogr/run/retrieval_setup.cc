#include "turbogr/run/retrieval_setup.h"

#include <algorithm>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/run/feature_setup.h"

namespace turbogr::run {
namespace {

bool of_user(const data::FeatureSource& key) {
  return key.kind == data::FeatureSource::Kind::kUser ||
         (key.kind == data::FeatureSource::Kind::kColumn &&
          key.column.about.owner == data::FeatureOwner::kUser);
}

enum class Owner : std::uint8_t { kItem, kEvent, kUser };

// Whose a feature is: the item's where nothing but the item decides it.
Owner owner_of(const FeatureConfig& feature, const data::SampleFeature& reads) {
  const auto& keys = reads.keys;
  const bool user = std::all_of(keys.begin(), keys.end(), of_user);
  if (feature.place == "prefix" || (feature.place == "auto" && user)) {
    TGR_CHECK(user, "[features.", feature.name,
              "]: place = \"prefix\" is for what the user alone decides, since one history serves "
              "all predictions; leave place out");
    return Owner::kUser;
  }
  const bool item = std::all_of(keys.begin(), keys.end(),
                                [](const data::FeatureSource& key) { return key.of_item(); });
  return item ? Owner::kItem : Owner::kEvent;
}

void check_feature_config(const Config& config, const eval::RetrievalFeatures& features) {
  TGR_CHECK(!features.encodes_items() || config.negatives.dtype == "full", "negatives.dtype = \"",
            config.negatives.dtype,
            "\" halves rows of the item table, and with model.output = \"item\" negatives are "
            "items with their features; use negatives.dtype = \"full\" or model.output = \"id\"");
  TGR_CHECK(features.prefix.empty() || config.model.targets == 0,
            "model.targets = ", config.model.targets, " and features of the user ([features.",
            features.prefix.empty() ? "" : features.prefix[0].rows.name,
            "]) before the history; use one of the two");
}

}  // namespace

eval::RetrievalFeatures retrieval_features(const Config& config, const data::Store& store) {
  return retrieval_features(
      config, [&](const FeatureConfig& feature) { return sample_feature(config, feature, store); });
}

eval::RetrievalFeatures retrieval_features(const Config& config, const FeatureReader& reads_of) {
  eval::RetrievalFeatures features;
  FeatureTables tables(config, config.model.width, "model.width", config.embedding.init);
  for (const FeatureConfig& feature : config.features) {
    TGR_CHECK(feature.from != "item", "[features.", feature.name,
              "]: the item's own row is always there in the retrieval task; leave the feature out");
    TGR_CHECK(feature.least == 0, "[features.", feature.name, "]: least = ", feature.least,
              " is for the ranking task; leave it out");
    TGR_CHECK(feature.number == "buckets", "[features.", feature.name, "]: number = \"",
              feature.number, "\" is for the ranking task; leave it out");
    TGR_CHECK(feature.rate.empty(), "[features.", feature.name, "]: rate = \"", feature.rate,
              "\" is for the ranking task; leave it out");
    eval::RetrievalFeature own;
    own.reads = reads_of(feature);
    const std::int64_t needed = own.reads.is_cross() ? 0 : own.reads.rows();
    own.rows = model_feature(feature, own.reads, tables.add(feature, needed));
    const Owner owner = owner_of(feature, own.reads);
    auto& list = owner == Owner::kItem    ? features.items
                 : owner == Owner::kEvent ? features.events
                                          : features.prefix;
    list.push_back(std::move(own));
  }
  features.tables = tables.finish();
  for (auto* list : {&features.items, &features.events, &features.prefix}) {
    for (eval::RetrievalFeature& feature : *list) {  // known when all are there
      if (feature.reads.is_cross()) feature.reads.cross_rows = tables.rows()[feature.rows.table];
    }
  }
  features.table_names = tables.names();
  features.item_output = config.model.output == "item";
  if (config.model.time_unit == "milliseconds") features.second = 1000;
  if (!features.empty()) check_feature_config(config, features);
  return features;
}

void add_features(eval::RetrievalFeatures features, std::int64_t most_sequences,
                  train::RetrievalOptions& options) {
  options.model.max_length += features.num_prefix();
  options.most_sequences = features.prefix.empty() ? 0 : most_sequences;
  options.features = std::move(features);
}

}  // namespace turbogr::run
