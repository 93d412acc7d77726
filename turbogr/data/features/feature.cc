#include "turbogr/data/features/feature.h"

#include <algorithm>

#include "turbogr/core/check.h"
#include "turbogr/data/field.h"

namespace turbogr::data {
namespace {

// A comma joins the features on the command line, so it goes by name.
char separator_of(std::string_view word, const std::string& text) {
  if (word.size() == 1) return word[0];
  if (word == "bar") return '|';
  if (word == "comma") return ',';
  if (word == "semicolon") return ';';
  if (word == "space") return ' ';
  if (word == "tab") return '\t';
  detail::throw_error("feature '", text, "': '", word,
                      "' does not separate the values of a bag; give one character, or bar, comma, "
                      "semicolon, space or tab");
}

FeatureRequest parse_request(const std::string& text) {
  FeatureRequest request;
  const std::size_t colon = text.find(':');
  request.name = text.substr(0, colon);
  TGR_CHECK(!request.name.empty(), "feature '", text, "' has no name; write name, or name:kind");
  check_name_length("feature", request.name, "rename the column");
  if (colon == std::string::npos) return request;
  const std::string_view rest = std::string_view(text).substr(colon + 1);
  if (rest == "category") {
    request.kind = FeatureRequest::Kind::kCategory;
  } else if (rest == "number") {
    request.kind = FeatureRequest::Kind::kNumber;
  } else if (rest == "bag") {
    request.kind = FeatureRequest::Kind::kBag;
  } else if (rest.starts_with("bag:")) {
    request.kind = FeatureRequest::Kind::kBag;
    request.separator = separator_of(rest.substr(4), text);
  } else {
    detail::throw_error("feature '", text, "': unknown kind '", rest,
                        "'; there are category, number, bag and bag:SEPARATOR");
  }
  return request;
}

}  // namespace

std::string_view name_of(FeatureOwner owner) {
  return owner == FeatureOwner::kItem ? "item" : owner == FeatureOwner::kUser ? "user" : "event";
}

std::string_view name_of(FeatureKind kind) {
  return kind == FeatureKind::kCategory ? "category" : kind == FeatureKind::kBag ? "bag" : "number";
}

std::string Feature::column(std::string_view part) const {
  std::string column(name_of(owner));
  column += "_feature";
  if (!part.empty()) column.append("_").append(part);
  return column + ":" + name;
}

std::vector<FeatureRequest> parse_feature_requests(const std::vector<std::string>& texts,
                                                   FeatureOwner owner) {
  TGR_CHECK(texts.size() <= kMostFeatures, texts.size(), " features of ", name_of(owner),
            "s; a store keeps ", kMostFeatures, " at most");
  std::vector<FeatureRequest> requests;
  for (const std::string& text : texts) {
    FeatureRequest request = parse_request(text);
    const bool twice =
        std::any_of(requests.begin(), requests.end(),
                    [&](const FeatureRequest& other) { return other.name == request.name; });
    TGR_CHECK(!twice, "--", name_of(owner), "-features names '", request.name,
              "' twice; name each column once");
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace turbogr::data
