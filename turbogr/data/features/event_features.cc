#include "turbogr/data/features/event_features.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <span>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/data/field.h"

namespace turbogr::data {

EventFeatures::EventFeatures(std::vector<FeatureRequest> requests,
                             const std::vector<std::vector<std::string>>& samples,
                             std::size_t memory_bytes)
    : memory_(memory_bytes) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Column& column = columns_.emplace_back();
    column.kind = settle_kind(requests[i], "", samples[i]);
    std::string words =
        words_on_separator(requests[i], FeatureOwner::kEvent, column.kind, samples[i]);
    if (!words.empty()) remarks_.push_back(std::move(words));
    column.request = std::move(requests[i]);
  }
}

void EventFeatures::check_memory(const Column& column) const {
  std::size_t bytes = 0;
  for (const Column& other : columns_) bytes += other.fields.bytes();
  TGR_CHECK(bytes <= std::max<std::size_t>(memory_, std::size_t{1} << 16), "event feature '",
            column.request.name, "': past ", column.fields.size(),
            " distinct values --memory holds no more; give more memory, or leave the feature out");
}

std::uint32_t EventFeatures::keep(std::size_t feature, std::string_view field,
                                  std::string_view file, std::int64_t line) {
  Column& column = columns_[feature];
  field = trimmed(field);
  if (column.kind.kind != FeatureKind::kNumber) {
    if (field.empty()) return 0;
    const std::int32_t before = column.fields.size();
    const std::int32_t place = column.fields.code_of(field);
    if (place > before) check_memory(column);
    return static_cast<std::uint32_t>(place);
  }
  float number = 0;
  if (parse_float(field, number) != FieldError::kNone) {
    number = std::numeric_limits<float>::quiet_NaN();
    if (column.unparsable++ == 0) {
      column.first_unparsable =
          fmt::format("'{}' in line {} of '{}'", printable(field, 40), line, file);
    }
  }
  return std::bit_cast<std::uint32_t>(number);
}

// From places of distinct fields to codes of sorted values.
void EventFeatures::number(Column& column) {
  Vocabulary values;
  for (std::int32_t place = 1; place <= column.fields.size(); ++place) {
    const auto add = [&](std::string_view value) { column.codes.push_back(values.code_of(value)); };
    if (column.kind.kind == FeatureKind::kBag) {
      for_each_value(column.fields.value(place), column.kind.separator, add);
    } else {
      add(column.fields.value(place));
    }
    column.ends.push_back(column.codes.size());
  }
  const std::vector<std::int32_t> order = values.sorted();
  std::vector<std::int32_t> renumbered(order.size() + 1);
  for (std::size_t i = 0; i < order.size(); ++i) {
    renumbered[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(i) + 1;
    column.writer->add_value(values.value(order[i]));
  }
  for (std::int32_t& code : column.codes) code = renumbered[static_cast<std::size_t>(code)];
  column.fields = Vocabulary();
}

void EventFeatures::open(StoreWriter& writer) {
  for (Column& column : columns_) {
    column.writer = &writer.add_feature(
        {.name = column.request.name, .owner = FeatureOwner::kEvent, .kind = column.kind.kind});
    column.writer->count_unparsable(column.unparsable);
    if (column.kind.kind != FeatureKind::kNumber) number(column);
  }
}

void EventFeatures::write(std::size_t feature, std::uint32_t kept) {
  Column& column = columns_[feature];
  if (column.kind.kind == FeatureKind::kNumber) {
    column.writer->add_number(std::bit_cast<float>(kept));
  } else if (column.kind.kind == FeatureKind::kCategory) {
    column.writer->add_code(kept == 0 ? 0 : column.codes[kept - 1]);
  } else {
    const std::uint64_t begin = kept < 2 ? 0 : column.ends[kept - 2];
    const std::uint64_t end = kept == 0 ? 0 : column.ends[kept - 1];
    column.writer->add_bag(std::span(column.codes).subspan(begin, end - begin));
  }
}

std::vector<std::string> EventFeatures::remarks() const {
  std::vector<std::string> remarks = remarks_;
  for (const Column& column : columns_) {
    if (column.unparsable == 0) continue;
    remarks.push_back(
        fmt::format("event feature {}: {} fields are no numbers and count as missing, the first {}",
                    column.request.name, column.unparsable, column.first_unparsable));
  }
  return remarks;
}

}  // namespace turbogr::data
