// Whole numbers of JSON that somebody may have forged: nlohmann turns 1e30 into any integer at all.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

namespace turbogr {

// The number, which is written without a fraction and fits T; otherwise nlohmann's own exception
// for a value of another kind, so that readers have one thing to catch.
template <class T, class Json>
T whole_number(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.template get<std::uint64_t>();
    if (std::in_range<T>(number)) return static_cast<T>(number);
  } else if (value.is_number_integer()) {
    const auto number = value.template get<std::int64_t>();
    if (std::in_range<T>(number)) return static_cast<T>(number);
  }
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
