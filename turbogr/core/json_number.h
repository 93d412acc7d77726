// Whole numbers of JSON that somebody may have forged: nlohmann turns 1e30 into any integer at all.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

namespace turbogr {

// Whether the value is a number, written without a fraction, that fits T.
template <class T, class Json>
bool is_whole_number(const Json& value) {
  if (value.is_number_unsigned()) return std::in_range<T>(value.template get<std::uint64_t>());
  return value.is_number_integer() && std::in_range<T>(value.template get<std::int64_t>());
}

// The number; otherwise nlohmann's own exception for a value of another kind, so that readers have
// one thing to catch.
template <class T, class Json>
T whole_number(const Json& value) {
  if (is_whole_number<T>(value)) return value.template get<T>();
  throw Json::type_error::create(302, "not a whole number that fits", &value);
}

// Likewise, from 0 on.
template <class Json>
std::int64_t count_of(const Json& value) {
  const auto count = whole_number<std::int64_t>(value);
  if (count < 0) throw Json::type_error::create(302, "less than 0", &value);
  return count;
}

}  // namespace turbogr
