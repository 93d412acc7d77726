// What the features of a ranking model read from a store: ids of rows of tables.
//
//   SampleFeature tags = {.name = "tags", .keys = {parse_source(store, "item.tags")}};
//   read_ids(tags, {.user = 3, .item = 17, .event = 1000, .seconds = 1651766400}, ids);
//
// Sources: `user` and `item` (the id itself), `user.NAME`, `item.NAME` and `event.NAME` (features
// of the store), `clock.hour` and `clock.day` (of the target's time, UTC). Codes are from 1; 0 is
// unknown or missing. A cross of up to three sources is one hashed id.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/features/feature_column.h"
#include "turbogr/data/holdout.h"
#include "turbogr/data/store.h"

namespace turbogr::data {

// What is known of an event that has not happened: the code of one of its features.
struct EventValue {
  std::string feature;
  std::int32_t code = 0;
};

// Where a feature is read: an event of the store, or one that has not happened (event -1), of a
// user or an item that may be unknown (-1).
struct EventPlace {
  std::int64_t user = -1;
  std::int64_t item = -1;
  std::int64_t event = -1;
  std::int64_t seconds = 0;
  const std::vector<EventValue>* values = nullptr;  // of one that has not happened
  // Of one that has not happened: what came before this second is known.
  std::int64_t before = std::numeric_limits<std::int64_t>::max();
};

struct FeatureSource {
  enum class Kind : std::uint8_t { kUser, kItem, kColumn, kHour, kDay };

  std::string text;
  Kind kind = Kind::kItem;
  FeatureColumn column = {};  // of kColumn
  std::int64_t codes = 0;     // ids run from 0 to this; of a number: not known

  bool is_bag() const { return kind == Kind::kColumn && column.about.kind == FeatureKind::kBag; }
  bool is_number() const {
    return kind == Kind::kColumn && column.about.kind == FeatureKind::kNumber;
  }
  bool of_item() const;   // depends on the item alone
  bool of_event() const;  // or on the event
};

// Throws on a source that the store does not have, naming the nearest.
FeatureSource parse_source(const Store& store, const std::string& text);
// Of a source that has one code.
std::int64_t code_of(const FeatureSource& source, const EventPlace& place);

// How a number becomes an id: 1 + the number of edges it reaches, or 1 + floor(log2(1 + x / unit)).
struct NumberBuckets {
  std::vector<float> edges;  // ascending; empty: by powers of two
  double unit = 1;
  std::int64_t most = 16;  // buckets of the powers of two

  std::int64_t count() const { return edges.empty() ? most : std::ssize(edges) + 1; }
  std::int64_t bucket(float x) const;  // 0: missing
};

// How a number becomes two rows and their factors: z = (x - mean) / sd, at most 10 away from 0,
// times row 1, plus row 2. A number that is missing is row 0.
struct NumberScale {
  double mean = 0, sd = 1;

  static constexpr std::int64_t kRows = 3, kMostIds = 2;
  float normalised(float x) const;
};
// Of the numbers that are there: of all users or items, of events those [0, end) of each user that
// the split's targets are.
NumberScale training_scale(const Store& store, const FeatureSource& source, const Holdout& holdout,
                           std::int64_t targets);

class PastRates;

struct SampleFeature {
  std::string name;
  std::vector<FeatureSource> keys;                  // several: a cross
  std::int64_t cross_rows = 0;                      // of the table of a cross
  NumberBuckets buckets;                            // of a number
  std::optional<NumberScale> scale = std::nullopt;  // of a number: instead of buckets
  std::int64_t most_ids = 1;                        // of a bag
  std::shared_ptr<const PastRates> rates = {};      // the number is the keys' rate; has a scale

  bool is_cross() const { return keys.size() > 1 && !scale; }  // one hashed id
  bool is_bag() const { return !is_cross() && keys[0].is_bag(); }
  bool has_offsets() const { return is_bag() || scale.has_value(); }  // any number of ids
  std::int64_t rows() const;                                          // a table needs at least
};

// Adds the feature's ids at a place: one, or those of a bag.
void read_ids(const SampleFeature& feature, const EventPlace& place,
              std::vector<std::int64_t>& ids);
// The same of a number with a scale, and what each row counts.
void read_scaled(const SampleFeature& feature, const EventPlace& place,
                 std::vector<std::int64_t>& ids, std::vector<float>& weights);

}  // namespace turbogr::data
