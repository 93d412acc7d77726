// A feature: one more thing known about every item, every user or every event of a store. A
// category is one code a row, a bag any number of codes, a number a float. Code 0 is unknown or
// missing; codes from 1 stand for the values of the feature's vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace turbogr::data {

enum class FeatureOwner : std::uint8_t { kItem, kUser, kEvent };
enum class FeatureKind : std::uint8_t { kCategory, kBag, kNumber };

std::string_view name_of(FeatureOwner owner);  // item, user, event
std::string_view name_of(FeatureKind kind);    // category, bag, number

inline constexpr std::size_t kMostFeatures = 32;  // of one owner

// What a store says of one.
struct Feature {
  std::string name;
  FeatureOwner owner = FeatureOwner::kItem;
  FeatureKind kind = FeatureKind::kCategory;
  std::int64_t values = 0;      // of the vocabulary: codes run from 1 to this
  std::int64_t missing = 0;     // rows without a value: code 0, an empty bag, NaN
  std::int64_t unparsable = 0;  // fields that are no number and so count as missing

  bool has_vocabulary() const { return kind != FeatureKind::kNumber; }
  // Of the columns it is kept in; parts are "", "offsets", "text_offsets" and "text".
  std::string column(std::string_view part = "") const;
};

// How the tables about items or users went with the events.
struct FeatureTable {
  FeatureOwner owner = FeatureOwner::kItem;
  std::int64_t rows = 0;
  std::int64_t without_events = 0;  // rows whose id is in no event; left out
  std::int64_t repeated = 0;        // rows that an earlier one of the same id gave way to
  std::int64_t unreadable = 0;      // rows of a wrong number of columns, without an id, ...
  std::int64_t without_row = 0;     // items or users of the store that no row speaks of
};

// What is asked for: `name`, `name:category`, `name:number`, `name:bag` or `name:bag:|`.
struct FeatureRequest {
  enum class Kind : std::uint8_t { kFind, kCategory, kBag, kNumber };  // kFind: by the values

  std::string name;
  Kind kind = Kind::kFind;
  char separator = 0;  // of a bag; 0: find it
};

// Throws on a kind that does not exist, on a name given twice, and on more than a store keeps.
std::vector<FeatureRequest> parse_feature_requests(const std::vector<std::string>& texts,
                                                   FeatureOwner owner);

}  // namespace turbogr::data
