#include "turbogr/data/id_map.h"

#include <algorithm>

#include "turbogr/core/check.h"
#include "turbogr/data/field.h"

namespace turbogr::data {

IdMap IdMap::range(std::int64_t count) {
  IdMap map;
  map.size_ = count;
  return map;
}

IdMap IdMap::integers(std::span<const std::int64_t> ids) {
  IdMap map;
  map.kind_ = IdKind::kInt64;
  map.size_ = static_cast<std::int64_t>(ids.size());
  map.numbers_ = ids;
  return map;
}

IdMap IdMap::strings(std::span<const std::int64_t> offsets, std::span<const char> text) {
  TGR_CHECK(!offsets.empty() && offsets.front() == 0 &&
                offsets.back() == static_cast<std::int64_t>(text.size()),
            "string ids: the offsets do not span the text");
  IdMap map;
  map.kind_ = IdKind::kString;
  map.size_ = static_cast<std::int64_t>(offsets.size()) - 1;
  map.numbers_ = offsets;
  map.text_ = text;
  return map;
}

std::int64_t IdMap::integer(std::int64_t index) const {
  TGR_CHECK(kind_ != IdKind::kString, "this store's ids are strings; ask for string(index)");
  TGR_CHECK(index >= 0 && index < size_, "index ", index, " is not one of ", size_, " ids");
  return kind_ == IdKind::kRange ? index : numbers_[static_cast<std::size_t>(index)];
}

std::string_view IdMap::string(std::int64_t index) const {
  TGR_CHECK(kind_ == IdKind::kString, "this store's ids are numbers; ask for integer(index)");
  TGR_CHECK(index >= 0 && index < size_, "index ", index, " is not one of ", size_, " ids");
  const std::int64_t begin = numbers_[static_cast<std::size_t>(index)];
  const std::int64_t end = numbers_[static_cast<std::size_t>(index) + 1];
  TGR_CHECK(begin >= 0 && begin <= end && end <= static_cast<std::int64_t>(text_.size()),
            "string id ", index, " is damaged; run `turbogr data verify`");
  return {text_.data() + begin, static_cast<std::size_t>(end - begin)};
}

std::string IdMap::text(std::int64_t index) const {
  return kind_ == IdKind::kString ? std::string(string(index)) : std::to_string(integer(index));
}

std::optional<std::int64_t> IdMap::find(std::int64_t id) const {
  if (kind_ == IdKind::kString) return find(std::string_view(std::to_string(id)));
  if (kind_ == IdKind::kRange) {
    return id >= 0 && id < size_ ? std::optional(id) : std::nullopt;
  }
  const auto at = std::lower_bound(numbers_.begin(), numbers_.end(), id);
  if (at == numbers_.end() || *at != id) return std::nullopt;
  return at - numbers_.begin();
}

std::optional<std::int64_t> IdMap::find(std::string_view id) const {
  if (kind_ != IdKind::kString) {
    std::int64_t number = 0;
    // As the log's ids were read: 00 is another text than 0, not another way to write it.
    if (parse_integer(id, number) != FieldError::kNone) return std::nullopt;
    return find(number);
  }
  std::int64_t low = 0;
  std::int64_t high = size_;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (string(middle) < id) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == size_ || string(low) != id) return std::nullopt;
  return low;
}

}  // namespace turbogr::data
