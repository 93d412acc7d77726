// Made-up features for steps of rank_batches.h: columns in memory, as a store would have them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "turbogr/core/philox.h"
#include "turbogr/eval/retrieval_features.h"

namespace turbogr::test {

// A category and a bag of items, a category of events, a cross of both with the user, the hour, and
// two features of users. It outlives its features.
class FeatureWorld {
 public:
  explicit FeatureWorld(std::int64_t items, std::int64_t users = 9, std::int64_t events = 400) {
    fill(category_, items, kCategories + 1);
    fill(tab_, events, 4);
    fill(gender_, users, 3);
    bag_offsets_.push_back(0);
    PhiloxStream random(77);
    for (std::int64_t item = 0; item < items; ++item) {
      for (std::uint64_t left = random.below(4); left > 0; --left) {
        bag_.push_back(static_cast<std::int32_t>(1 + random.below(kTags)));
      }
      bag_offsets_.push_back(std::ssize(bag_));
    }
  }

  struct Parts {
    bool items = true, events = true, prefix = true, item_output = true;
    std::int64_t width = 8;
    double scale = 0.1;
    embedding::SparseOptimiser optimiser = embedding::SparseOptimiser::kAdamW;
  };
  eval::RetrievalFeatures features(const Parts& parts) const {
    eval::RetrievalFeatures all;
    all.item_output = parts.item_output;
    const auto table = [&](std::int64_t rows) {
      all.tables.push_back({.rows = rows,
                            .width = parts.width,
                            .optimiser = parts.optimiser,
                            .start = parts.scale,
                            .seed = 40 + all.tables.size()});
      all.table_names.push_back("t" + std::to_string(all.tables.size()));
      return all.tables.size() - 1;
    };
    if (parts.items) {
      // Two features that share a table.
      const std::size_t shared = table(kCategories + 1);
      all.items.push_back(feature("category", {category()}, shared));
      eval::RetrievalFeature tags = feature("tags", {tags_source()}, table(kTags + 1));
      tags.reads.most_ids = tags.rows.most_ids = 3;
      tags.rows.pooling = model::Pooling::kMean;
      all.items.push_back(std::move(tags));
    }
    if (parts.events) {
      all.events.push_back(feature("tab", {tab()}, table(5)));
      eval::RetrievalFeature cross = feature("cross", {user(), category()}, table(11));
      cross.reads.cross_rows = 11;
      all.events.push_back(std::move(cross));
      all.events.push_back(feature("hour", {hour()}, table(25)));
    }
    if (parts.prefix) {
      all.prefix.push_back(feature("user", {user()}, table(std::ssize(gender_) + 1)));
      all.prefix.push_back(feature("gender", {gender()}, table(4)));
    }
    return all;
  }

 private:
  static constexpr std::int64_t kCategories = 6, kTags = 9;
  using Source = data::FeatureSource;

  static void fill(std::vector<std::int32_t>& codes, std::int64_t count, std::uint64_t below) {
    PhiloxStream random(below);
    for (std::int64_t i = 0; i < count; ++i) {
      codes.push_back(static_cast<std::int32_t>(random.below(below)));
    }
  }
  static eval::RetrievalFeature feature(const std::string& name, std::vector<Source> keys,
                                        std::size_t table) {
    eval::RetrievalFeature own;
    own.reads.name = own.rows.name = name;
    own.reads.keys = std::move(keys);
    own.rows.table = table;
    return own;
  }
  static Source column(const std::string& name, data::FeatureOwner owner, data::FeatureKind kind,
                       const std::vector<std::int32_t>& codes) {
    Source source;
    source.kind = Source::Kind::kColumn;
    source.column.about = {.name = name,
                           .owner = owner,
                           .kind = kind,
                           .values = *std::max_element(codes.begin(), codes.end())};
    source.column.codes = codes;
    return source;
  }
  Source category() const {
    return column("category", data::FeatureOwner::kItem, data::FeatureKind::kCategory, category_);
  }
  Source tags_source() const {
    Source source = column("tags", data::FeatureOwner::kItem, data::FeatureKind::kBag, bag_);
    source.column.offsets = bag_offsets_;
    return source;
  }
  Source tab() const {
    return column("tab", data::FeatureOwner::kEvent, data::FeatureKind::kCategory, tab_);
  }
  Source gender() const {
    return column("gender", data::FeatureOwner::kUser, data::FeatureKind::kCategory, gender_);
  }
  static Source user() {
    Source source;
    source.kind = Source::Kind::kUser;
    return source;
  }
  static Source hour() {
    Source source;
    source.kind = Source::Kind::kHour;
    return source;
  }

  std::vector<std::int32_t> category_, tab_, gender_, bag_;
  std::vector<std::int64_t> bag_offsets_;
};

}  // namespace turbogr::test
