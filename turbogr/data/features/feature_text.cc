#include "turbogr/data/features/feature_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "turbogr/core/escape.h"

namespace turbogr::data {
namespace {

bool occurs(char c, const std::vector<std::string>& sample) {
  return std::any_of(sample.begin(), sample.end(),
                     [&](const std::string& field) { return field.find(c) != std::string::npos; });
}

FeatureRequest::Kind kind_of(std::string_view type) {
  if (type == "float") return FeatureRequest::Kind::kNumber;
  if (type == "token_seq" || type == "list") return FeatureRequest::Kind::kBag;
  if (type == "token") return FeatureRequest::Kind::kCategory;
  return FeatureRequest::Kind::kFind;
}

}  // namespace

FeatureColumnKind settle_kind(const FeatureRequest& request, std::string_view type,
                              const std::vector<std::string>& sample) {
  using Kind = FeatureRequest::Kind;
  const Kind kind = request.kind != Kind::kFind ? request.kind : kind_of(type);
  if (kind == Kind::kNumber) return {.kind = FeatureKind::kNumber};
  if (kind == Kind::kCategory) return {.kind = FeatureKind::kCategory};
  if (kind == Kind::kFind) {
    return {.kind = occurs('|', sample) ? FeatureKind::kBag : FeatureKind::kCategory};
  }
  if (request.separator != 0) return {.kind = FeatureKind::kBag, .separator = request.separator};
  if (type == "token_seq") return {.kind = FeatureKind::kBag, .separator = ' '};
  if (type == "list") return {.kind = FeatureKind::kBag, .separator = kListSeparator};
  for (const char separator : {'|', ';', ','}) {
    if (occurs(separator, sample)) return {.kind = FeatureKind::kBag, .separator = separator};
  }
  return {.kind = FeatureKind::kBag};
}

std::string words_on_separator(const FeatureRequest& request, FeatureOwner owner,
                               const FeatureColumnKind& column,
                               const std::vector<std::string>& sample) {
  if (column.kind != FeatureKind::kBag || occurs(column.separator, sample)) return "";
  return fmt::format(
      "{} feature {}: no '{}' in the first rows, where each field is a bag of one value; is there "
      "another separator? Give it as {}:bag:SEPARATOR",
      name_of(owner), request.name, column.separator, request.name);
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string words_for(const Feature& feature, std::int64_t rows) {
  const double share =
      rows > 0 ? 100 * static_cast<double>(feature.missing) / static_cast<double>(rows) : 0;
  return fmt::format("{} feature {}: {}{}, {:.1f} % missing", name_of(feature.owner),
                     escaped(feature.name), name_of(feature.kind),
                     feature.has_vocabulary() ? fmt::format(", {} values", feature.values) : "",
                     share);
}

}  // namespace turbogr::data
