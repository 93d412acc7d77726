#include "turbogr/data/features/feature_column.h"

#include <algorithm>
#include <cmath>

#include "turbogr/core/check.h"

namespace turbogr::data {
namespace {

// Part i of values that lie end to end.
template <class T>
std::span<const T> part_of(std::span<const T> values, std::span<const std::int64_t> offsets,
                           std::int64_t i, const Feature& feature) {
  TGR_CHECK(i >= 0 && i + 1 < static_cast<std::int64_t>(offsets.size()), name_of(feature.owner),
            " feature '", feature.name, "': ", i, " is not one of ", offsets.size() - 1);
  const std::int64_t begin = offsets[static_cast<std::size_t>(i)];
  const std::int64_t end = offsets[static_cast<std::size_t>(i) + 1];
  TGR_CHECK(begin >= 0 && begin <= end && end <= static_cast<std::int64_t>(values.size()),
            name_of(feature.owner), " feature '", feature.name, "' is damaged at ", i,
            "; run `turbogr data verify`");
  return values.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

void check_code(std::int32_t code, std::int32_t first, std::int64_t row, const Feature& feature) {
  TGR_CHECK(code >= first && code <= feature.values, name_of(feature.owner), " feature '",
            feature.name, "' has code ", code, " at ", row, " where there are ", feature.values,
            " values: the store is damaged; run `turbogr data verify`");
}

}  // namespace

std::int32_t FeatureColumn::code(std::int64_t row) const {
  const std::int32_t code = codes[static_cast<std::size_t>(row)];
  check_code(code, 0, row, about);
  return code;
}

std::span<const std::int32_t> FeatureColumn::bag(std::int64_t row) const {
  TGR_CHECK(about.kind == FeatureKind::kBag, name_of(about.owner), " feature '", about.name,
            "' is a ", name_of(about.kind), ", not a bag");
  const std::span<const std::int32_t> found = part_of(codes, offsets, row, about);
  for (const std::int32_t code : found) check_code(code, 1, row, about);
  return found;
}

std::string_view FeatureColumn::value(std::int32_t code) const {
  if (code == 0) return {};
  const std::span<const char> found = part_of(text, text_offsets, std::int64_t{code} - 1, about);
  return {found.data(), found.size()};
}

void FeatureColumn::verify() const {
  const std::int32_t first = about.kind == FeatureKind::kBag ? 1 : 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    TGR_CHECK(codes[i] >= first && codes[i] <= about.values, name_of(about.owner), " feature '",
              about.name, "': code ", codes[i], " at place ", i, " of ", about.values, " values");
  }
  for (std::int64_t code = 1; code <= about.values; ++code) {
    TGR_CHECK(!value(static_cast<std::int32_t>(code)).empty(), name_of(about.owner), " feature '",
              about.name, "': code ", code, " stands for nothing");
  }
  std::int64_t missing = 0;
  if (about.kind == FeatureKind::kBag) {
    const auto rows = static_cast<std::int64_t>(offsets.size()) - 1;
    for (std::int64_t row = 0; row < rows; ++row) missing += bag(row).empty() ? 1 : 0;
  } else if (about.kind == FeatureKind::kCategory) {
    missing = std::count(codes.begin(), codes.end(), 0);
  } else {
    missing = std::count_if(numbers.begin(), numbers.end(), [](float x) { return std::isnan(x); });
  }
  TGR_CHECK(missing == about.missing, name_of(about.owner), " feature '", about.name,
            "': ", missing, " rows have no value, the manifest says ", about.missing);
}

}  // namespace turbogr::data
