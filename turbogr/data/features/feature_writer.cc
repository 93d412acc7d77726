#include "turbogr/data/features/feature_writer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "turbogr/core/check.h"

namespace turbogr::data {

FeatureWriter::FeatureWriter(Feature feature, FeatureFiles files)
    : feature_(std::move(feature)), files_(files) {
  if (files_.offsets != nullptr) files_.offsets->append_value(std::int64_t{0});
  if (files_.text_offsets != nullptr) files_.text_offsets->append_value(std::int64_t{0});
}

void FeatureWriter::add_value(std::string_view text) {
  TGR_CHECK(files_.text != nullptr, "feature '", feature_.name, "' is a number and has no values");
  TGR_CHECK(!text.empty(), "feature '", feature_.name, "': an empty value is code 0 already");
  TGR_CHECK(feature_.values < std::numeric_limits<std::int32_t>::max(), "feature '", feature_.name,
            "' has more than 2^31 - 1 values");
  files_.text->append(text.data(), text.size());
  files_.text_offsets->append_value(files_.text->bytes());
  ++feature_.values;
}

void FeatureWriter::take_row(FeatureKind kind, bool missing) {
  TGR_CHECK(kind == feature_.kind, "feature '", feature_.name, "' is a ", name_of(feature_.kind),
            ", not a ", name_of(kind));
  ++num_rows_;
  feature_.missing += missing ? 1 : 0;
}

void FeatureWriter::note_code(std::int32_t code) {
  TGR_CHECK(code >= 0, "feature '", feature_.name, "': code ", code, " is negative");
  largest_code_ = std::max(largest_code_, code);
}

void FeatureWriter::add_code(std::int32_t code) {
  take_row(FeatureKind::kCategory, code == 0);
  note_code(code);
  files_.values->append_value(code);
}

void FeatureWriter::add_bag(std::span<const std::int32_t> codes) {
  take_row(FeatureKind::kBag, codes.empty());
  for (const std::int32_t code : codes) {
    TGR_CHECK(code != 0, "feature '", feature_.name, "': a bag leaves out what it does not know");
    note_code(code);
  }
  files_.values->append(codes.data(), codes.size_bytes());
  num_codes_ += static_cast<std::int64_t>(codes.size());
  files_.offsets->append_value(num_codes_);
}

void FeatureWriter::add_number(float number) {
  take_row(FeatureKind::kNumber, std::isnan(number));
  files_.values->append_value(number);
}

Feature FeatureWriter::finish(std::int64_t rows) const {
  TGR_CHECK(num_rows_ == rows, "got ", num_rows_, " rows of ", name_of(feature_.owner),
            " feature '", feature_.name, "' for ", rows, " ", name_of(feature_.owner), "s");
  TGR_CHECK(largest_code_ <= feature_.values, "feature '", feature_.name, "': code ", largest_code_,
            " of ", feature_.values, " values");
  return feature_;
}

}  // namespace turbogr::data
