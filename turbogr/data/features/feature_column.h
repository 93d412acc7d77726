// One feature of an open store: mapped memory, a row an item, user or event.
//
//   const FeatureColumn tags = store.feature(FeatureOwner::kItem, "tags");
//   for (const std::int32_t code : tags.bag(item)) fmt::print("{}", tags.value(code));
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "turbogr/data/features/feature.h"

namespace turbogr::data {

struct FeatureColumn {
  Feature about;
  std::span<const std::int32_t> codes;    // category: one a row; bag: those of all rows end to end
  std::span<const std::int64_t> offsets;  // bag: [rows + 1]
  std::span<const float> numbers;         // number: one a row, NaN when missing
  std::span<const std::int64_t> text_offsets;  // [values + 1]
  std::span<const char> text;

  // The code of one row of a category. Throws on one that only a damaged store has: it would lead
  // out of the memory of whoever counts by codes.
  std::int32_t code(std::int64_t row) const;
  // Codes of one row, each from 1. Throws on offsets and codes that only a damaged store has.
  std::span<const std::int32_t> bag(std::int64_t row) const;
  // What a code stands for, as it stood in the input; empty for 0.
  std::string_view value(std::int32_t code) const;

  // Every code and offset against its range, and the missing against their count. Throws on the
  // first thing wrong.
  void verify() const;
};

}  // namespace turbogr::data
