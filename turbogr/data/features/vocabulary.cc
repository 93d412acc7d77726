#include "turbogr/data/features/vocabulary.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/data/field.h"
#include "turbogr/data/id_collector.h"

namespace turbogr::data {
namespace {

std::size_t place_of(std::string_view value, std::size_t num_slots) {
  return static_cast<std::uint64_t>(key_of(value)) & (num_slots - 1);
}

}  // namespace

Vocabulary::Vocabulary() : slots_(64) {}

std::size_t Vocabulary::bytes() const {
  return text_.capacity() + ends_.capacity() * sizeof(std::uint64_t) +
         slots_.capacity() * sizeof(std::int32_t);
}

std::string_view Vocabulary::value(std::int32_t code) const {
  const auto at = static_cast<std::size_t>(code) - 1;
  const std::uint64_t begin = at == 0 ? 0 : ends_[at - 1];
  return std::string_view(text_).substr(begin, ends_[at] - begin);
}

std::int32_t Vocabulary::code_of(std::string_view value) {
  std::size_t at = place_of(value, slots_.size());
  for (; slots_[at] != 0; at = (at + 1) & (slots_.size() - 1)) {
    if (this->value(slots_[at]) == value) return slots_[at];
  }
  TGR_CHECK(size() < std::numeric_limits<std::int32_t>::max(),
            "more than 2^31 - 1 distinct values");
  text_ += value;
  ends_.push_back(text_.size());
  slots_[at] = size();
  if (2 * ends_.size() > slots_.size()) grow();
  return size();
}

void Vocabulary::grow() {
  slots_.assign(2 * slots_.size(), 0);
  for (std::int32_t code = 1; code <= size(); ++code) {
    std::size_t at = place_of(value(code), slots_.size());
    while (slots_[at] != 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = code;
  }
}

std::vector<std::int32_t> Vocabulary::sorted() const {
  std::vector<std::int32_t> codes(static_cast<std::size_t>(size()));
  std::iota(codes.begin(), codes.end(), 1);
  std::vector<std::int64_t> integers;
  for (const std::int32_t code : codes) {
    std::int64_t integer = 0;
    if (parse_integer(value(code), integer) != FieldError::kNone) break;
    integers.push_back(integer);
  }
  if (integers.size() == codes.size()) {
    std::sort(codes.begin(), codes.end(), [&](std::int32_t a, std::int32_t b) {
      return integers[static_cast<std::size_t>(a) - 1] < integers[static_cast<std::size_t>(b) - 1];
    });
  } else {
    std::sort(codes.begin(), codes.end(),
              [&](std::int32_t a, std::int32_t b) { return value(a) < value(b); });
  }
  return codes;
}

}  // namespace turbogr::data
