// Fields of text as features: what kind a column is, and the values in a field.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/features/feature.h"

namespace turbogr::data {

// A request with nothing left open.
struct FeatureColumnKind {
  FeatureKind kind = FeatureKind::kCategory;
  char separator = '|';  // of a bag
};

inline constexpr char kListSeparator = '|';  // of lists written as text, unless one is asked for

// What the first rows of a column say. A bar makes a bag of a column nobody gave a kind; a bag
// nobody gave a separator has the first of | ; , that occurs. `type` is RecBole's (token,
// token_seq, float), list, or empty.
FeatureColumnKind settle_kind(const FeatureRequest& request, std::string_view type,
                              const std::vector<std::string>& sample);

// For people, when a column that is to be a bag has no separator in its first rows; else empty.
std::string words_on_separator(const FeatureRequest& request, FeatureOwner owner,
                               const FeatureColumnKind& column,
                               const std::vector<std::string>& sample);

std::string_view trimmed(std::string_view text);  // without blanks at both ends

// Calls use(value) for each value of a bag that is not blank.
template <class Use>
void for_each_value(std::string_view field, char separator, Use&& use) {
  while (!field.empty()) {
    const std::size_t stop = field.find(separator);
    const std::string_view value = trimmed(field.substr(0, stop));
    if (!value.empty()) use(value);
    if (stop == std::string_view::npos) return;
    field.remove_prefix(stop + 1);
  }
}

// "item feature genres: bag, 18 values, 0.1 % missing".
std::string words_for(const Feature& feature, std::int64_t rows);

}  // namespace turbogr::data
