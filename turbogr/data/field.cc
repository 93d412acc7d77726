#include "turbogr/data/field.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "turbogr/core/check.h"

namespace turbogr::data {
namespace {

// Past this even milliseconds lie beyond the year 5000: microseconds, or not a time at all.

bool digits(std::string_view text, std::size_t at, std::size_t count, int& value) {
  if (at + count > text.size()) return false;
  value = 0;
  for (std::size_t i = at; i < at + count; ++i) {
    if (text[i] < '0' || text[i] > '9') return false;
    value = value * 10 + (text[i] - '0');
  }
  return true;
}

// Days from 1970-01-01 in the proleptic Gregorian calendar, counting years from March so that the
// leap day comes last.
std::int64_t days_from_civil(int year, int month, int day) {
  const int y = month <= 2 ? year - 1 : year;
  const int era = (y >= 0 ? y : y - 399) / 400;
  const int year_of_era = y - era * 400;
  const int day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  const int day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return std::int64_t{era} * 146097 + day_of_era - 719468;
}

bool real_day(int year, int month, int day) {
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  if (month < 1 || month > 12 || day < 1) return false;
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return day <= kDays[month - 1] + (month == 2 && leap ? 1 : 0);
}

FieldError parse_iso(std::string_view text, std::int64_t& value) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  std::int64_t milliseconds = 0;
  if (!digits(text, 0, 4, year) || text.size() < 10 || text[4] != '-' || text[7] != '-' ||
      !digits(text, 5, 2, month) || !digits(text, 8, 2, day) || !real_day(year, month, day)) {
    return FieldError::kBadTime;
  }
  std::size_t at = 10;
  int zone_minutes = 0;
  if (at < text.size()) {
    if ((text[at] != 'T' && text[at] != ' ') || !digits(text, at + 1, 2, hour) ||
        at + 3 >= text.size() || text[at + 3] != ':' || !digits(text, at + 4, 2, minute)) {
      return FieldError::kBadTime;
    }
    at += 6;
    if (at < text.size() && text[at] == ':') {
      if (!digits(text, at + 1, 2, second)) return FieldError::kBadTime;
      at += 3;
    }
    if (at < text.size() && (text[at] == '.' || text[at] == ',')) {
      int scale = 100;
      const std::size_t start = ++at;
      for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at, scale /= 10) {
        milliseconds += scale * (text[at] - '0');
      }
      if (at == start) return FieldError::kBadTime;
    }
    if (at < text.size() && text[at] == ' ') ++at;  // "12:00:00 UTC", "12:00:00 +0200"
    const std::string_view zone = text.substr(at);
    if (!zone.empty() && zone != "Z" && zone != "UTC") {
      int zone_hour = 0, zone_minute = 0;
      const bool colon = zone.size() == 6 && zone[3] == ':';
      const bool shaped = (zone[0] == '+' || zone[0] == '-') && digits(zone, 1, 2, zone_hour) &&
                          (zone.size() == 3 || ((colon || zone.size() == 5) &&
                                                digits(zone, colon ? 4 : 3, 2, zone_minute)));
      if (!shaped) return FieldError::kBadTime;
      zone_minutes = (zone[0] == '-' ? -1 : 1) * (60 * zone_hour + zone_minute);
    }
  }
  if (hour > 23 || minute > 59 || second > 60) return FieldError::kBadTime;
  const std::int64_t minutes = days_from_civil(year, month, day) * 1440 + hour * 60 + minute;
  value = ((minutes - zone_minutes) * 60 + second) * 1000 + milliseconds;
  return FieldError::kNone;
}

}  // namespace

std::string printable(std::string_view text, std::size_t most) {
  std::string result;
  for (const char c : text.substr(0, most)) {
    const auto byte = static_cast<unsigned char>(c);
    result += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return text.size() > most ? result + "..." : result;
}

FieldError parse_float(std::string_view text, float& value) {
  if (text.empty()) {
    value = std::numeric_limits<float>::quiet_NaN();
    return FieldError::kNone;
  }
  // Whole numbers below 2^53, the usual case, need no general parser.
  if (text.size() <= 15) {
    std::int64_t whole = 0;
    bool plain = true;
    for (const char c : text) {
      const auto digit = static_cast<unsigned>(c - '0');
      plain = plain && digit <= 9;
      whole = whole * 10 + static_cast<std::int64_t>(digit & 15u);
    }
    if (plain) {
      value = static_cast<float>(whole);
      return FieldError::kNone;
    }
  }
  const char* first = text.data() + (text[0] == '+' ? 1 : 0);
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(first, last, value);
  if (error == std::errc::result_out_of_range) return FieldError::kTooLarge;
  if (error != std::errc() || end != last || std::isinf(value)) return FieldError::kNotANumber;
  return FieldError::kNone;
}

FieldError parse_signal_slow(std::string_view text, bool& value) {
  if (text.empty() || text == "false" || text == "False" || text == "FALSE") {
    value = false;
    return FieldError::kNone;
  }
  if (text == "true" || text == "True" || text == "TRUE") {
    value = true;
    return FieldError::kNone;
  }
  float number = 0;
  const FieldError error = parse_float(text, number);
  if (std::isnan(number)) return FieldError::kNotANumber;  // neither set nor not
  value = number != 0;
  return error;
}

TimeSpelling guess_time_spelling(std::string_view text) {
  if (text.find('-', 1) != std::string_view::npos) return TimeSpelling::kIso;
  return text.find('.') != std::string_view::npos ? TimeSpelling::kDecimalSeconds
                                                  : TimeSpelling::kInteger;
}

FieldError parse_time(std::string_view text, TimeSpelling spelling, std::int64_t& value) {
  if (spelling == TimeSpelling::kInteger) {
    const FieldError error = parse_integer(text, value);
    return error == FieldError::kNone ? time_in_range(value) : error;
  }
  if (spelling == TimeSpelling::kIso) return parse_iso(text, value);
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error == std::errc::result_out_of_range) return FieldError::kTooLarge;
  if (error != std::errc() || end != text.data() + text.size()) return FieldError::kBadTime;
  if (std::isnan(seconds)) return FieldError::kBadTime;
  if (!(std::abs(seconds) < static_cast<double>(kLargestTime) / 1000)) return FieldError::kTooLarge;
  value = std::llround(seconds * 1000);
  return FieldError::kNone;
}

void check_name_length(std::string_view what, std::string_view name, std::string_view advice) {
  TGR_CHECK(name.size() <= kLongestName, what, " '", printable(name, 40), "' has a name of ",
            name.size(), " bytes; a store keeps names of ", kLongestName, " at most: ", advice);
}

}  // namespace turbogr::data
