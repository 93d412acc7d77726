// Text fields to numbers. Each parse either takes the whole field or says what is wrong with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "turbogr/data/manifest.h"

namespace turbogr::data {

// At most so many bytes of text from a file, fit for a message: no control characters.
std::string printable(std::string_view text, std::size_t most);

enum class FieldError : std::uint8_t { kNone, kEmpty, kNotANumber, kTooLarge, kBadTime, kTooLong };

// Of a string id, in bytes. Merging the lists of ids holds one of each list in memory.
inline constexpr std::size_t kLongestId = 4096;

// Of a signal, a number column or a feature, in bytes: names are printed, and typed by people.
inline constexpr std::size_t kLongestName = 200;
// Throws on a longer one, with what to do.
void check_name_length(std::string_view what, std::string_view name, std::string_view advice);

// Only the canonical spelling: no plus sign, no leading zeros, so that the number gives back the
// text. "007" is a string, not a 7.
inline FieldError parse_integer(std::string_view text, std::int64_t& value) {
  const char* p = text.data();
  const char* const end = p + text.size();
  if (p == end) return FieldError::kEmpty;
  const bool negative = *p == '-';
  if (negative) ++p;
  const auto digits = end - p;
  if (digits == 0 || (*p == '0' && (digits > 1 || negative))) return FieldError::kNotANumber;
  std::uint64_t sum = 0;
  for (const char* q = p; q < end; ++q) {
    const auto digit = static_cast<unsigned>(*q - '0');
    if (digit > 9) return FieldError::kNotANumber;
    sum = sum * 10 + digit;
  }
  // 18 digits always fit; 19 may, and cannot wrap past 2^64.
  constexpr std::uint64_t kLargest = 0x7fffffffffffffffu;
  if (digits > 19 || (digits == 19 && sum > kLargest)) return FieldError::kTooLarge;
  value = negative ? -static_cast<std::int64_t>(sum) : static_cast<std::int64_t>(sum);
  return FieldError::kNone;
}

FieldError parse_float(std::string_view text, float& value);  // an empty field is NaN

// 0 or 1, true or false, any number (set when it is not zero). An empty field is not set.
FieldError parse_signal_slow(std::string_view text, bool& value);
inline FieldError parse_signal(std::string_view text, bool& value) {
  if (text.size() == 1 && (text[0] == '0' || text[0] == '1')) {
    value = text[0] == '1';
    return FieldError::kNone;
  }
  return parse_signal_slow(text, value);
}

// How a file spells its times. Integers are kept as they are; the other two become milliseconds.
enum class TimeSpelling : std::uint8_t { kInteger, kDecimalSeconds, kIso };

TimeSpelling guess_time_spelling(std::string_view text);

// ISO 8601 and its usual relatives: 2022-04-08, 2022-04-08T12:30:15.250Z, 2022-04-08 12:30+02:00.
// Without a zone it is taken as UTC.
FieldError parse_time(std::string_view text, TimeSpelling spelling, std::int64_t& value);

// kTooLarge for what is neither seconds nor milliseconds of the next millennia.
inline constexpr std::int64_t kLargestTime = 100'000'000'000'000;
inline FieldError time_in_range(std::int64_t time) {
  return time > -kLargestTime && time < kLargestTime ? FieldError::kNone : FieldError::kTooLarge;
}

}  // namespace turbogr::data
