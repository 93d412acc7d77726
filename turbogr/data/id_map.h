// Original ids of users or items, in ascending order (numbers by value, strings by byte), so that
// the place of an id is its dense index and finding one is a binary search.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "turbogr/data/manifest.h"

namespace turbogr::data {

// Borrowed memory: columns of a mapped store.
class IdMap {
 public:
  IdMap() = default;
  static IdMap range(std::int64_t count);
  static IdMap integers(std::span<const std::int64_t> ids);
  // Id i is text[offsets[i], offsets[i + 1]).
  static IdMap strings(std::span<const std::int64_t> offsets, std::span<const char> text);

  IdKind kind() const { return kind_; }
  std::int64_t size() const { return size_; }

  std::int64_t integer(std::int64_t index) const;     // not for strings
  std::string_view string(std::int64_t index) const;  // only for strings
  std::string text(std::int64_t index) const;         // either, for people

  // The index of an id, or nothing. A string map is asked with the text, the others with digits.
  std::optional<std::int64_t> find(std::int64_t id) const;
  std::optional<std::int64_t> find(std::string_view id) const;

 private:
  IdKind kind_ = IdKind::kRange;
  std::int64_t size_ = 0;
  std::span<const std::int64_t> numbers_;  // ids, or offsets of strings
  std::span<const char> text_;
};

}  // namespace turbogr::data
