// Writes one feature into a store: its rows one after the other, and its vocabulary at any time
// before the store is finished.
//
//   FeatureWriter& genre = writer.add_feature({.name = "genre", .owner = FeatureOwner::kItem});
//   genre.add_value("Drama");   // code 1
//   genre.add_code(1);          // of item 0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "turbogr/data/features/feature.h"
#include "turbogr/data/file.h"

namespace turbogr::data {

// The open files of a feature; null where its kind needs none.
struct FeatureFiles {
  FileWriter* values = nullptr;
  FileWriter* offsets = nullptr;  // of bags
  FileWriter* text_offsets = nullptr;
  FileWriter* text = nullptr;
};

class FeatureWriter {
 public:
  FeatureWriter(Feature feature, FeatureFiles files);

  void add_value(std::string_view text);  // the next code's; not empty
  void add_code(std::int32_t code);       // the next row's, of a category
  void add_bag(std::span<const std::int32_t> codes);
  void add_number(float number);
  void count_unparsable(std::int64_t rows) { feature_.unparsable += rows; }

  FeatureOwner owner() const { return feature_.owner; }

  // What the manifest says. Throws unless there are `rows` rows, and no code without a value.
  Feature finish(std::int64_t rows) const;

 private:
  void take_row(FeatureKind kind, bool missing);
  void note_code(std::int32_t code);

  Feature feature_;
  FeatureFiles files_;
  std::int64_t num_rows_ = 0;
  std::int64_t num_codes_ = 0;  // in bags
  std::int32_t largest_code_ = 0;
};

}  // namespace turbogr::data
