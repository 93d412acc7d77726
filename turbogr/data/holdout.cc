#include "turbogr/data/holdout.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>

#include "turbogr/core/check.h"

namespace turbogr::data {
namespace {

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// YYYY-MM-DD with or without Thh:mm:ss, in UTC, as seconds since 1970.
std::optional<std::int64_t> date_seconds(std::string_view text) {
  using namespace std::chrono;
  const bool with_clock = text.size() == 19;
  if ((text.size() != 10 && !with_clock) || text[4] != '-' || text[7] != '-') return std::nullopt;
  const auto y = number(text.substr(0, 4));
  const auto m = number(text.substr(5, 2));
  const auto d = number(text.substr(8, 2));
  if (!y || !m || !d || *m < 1 || *d < 1) return std::nullopt;
  const year_month_day date{year{static_cast<int>(*y)}, month{static_cast<unsigned>(*m)},
                            day{static_cast<unsigned>(*d)}};
  if (!date.ok()) return std::nullopt;
  std::int64_t seconds = sys_days{date}.time_since_epoch().count() * 86400;
  if (!with_clock) return seconds;
  if ((text[10] != 'T' && text[10] != ' ') || text[13] != ':' || text[16] != ':') {
    return std::nullopt;
  }
  const auto hour = number(text.substr(11, 2));
  const auto minute = number(text.substr(14, 2));
  const auto second = number(text.substr(17, 2));
  const auto within = [](std::optional<std::int64_t> value, std::int64_t bound) {
    return value && *value >= 0 && *value < bound;
  };
  if (!within(hour, 24) || !within(minute, 60) || !within(second, 60)) return std::nullopt;
  return seconds + *hour * 3600 + *minute * 60 + *second;
}

}  // namespace

std::string_view name_of(Split split) {
  return split == Split::kTrain ? "train" : split == Split::kValidation ? "validation" : "test";
}

Holdout::Holdout(std::string_view text) : text_(text) {
  if (text == "test") {
    kind_ = Kind::kTest;
  } else if (text == "validation_test") {
    kind_ = Kind::kValidationTest;
  } else {
    TGR_CHECK(text.starts_with("time:"), "hold-out '", text,
              "'; use test, validation_test or time:T");
    kind_ = Kind::kTime;
    const std::string_view when = text.substr(5);
    const std::optional<std::int64_t> plain = number(when);
    const std::optional<std::int64_t> date = date_seconds(when);
    TGR_CHECK(plain || date, "hold-out time '", when,
              "' is neither a number in the store's unit nor a date like 2022-05-01 or "
              "2022-05-01T12:00:00");
    time_is_date_ = !plain;
    time_ = plain ? *plain : *date;
  }
}

void Holdout::check(Split split, TimeUnit unit) const {
  TGR_CHECK(split != Split::kValidation || kind_ == Kind::kValidationTest, "hold-out '", text_,
            "' keeps no validation events; use validation_test, or evaluate on test");
  TGR_CHECK(kind_ != Kind::kTime || unit != TimeUnit::kNone, "hold-out '", text_,
            "' needs times, and the store has only the order of events; use test or "
            "validation_test");
}

std::int64_t Holdout::time_in(TimeUnit unit) const {
  return time_is_date_ && unit == TimeUnit::kMilliseconds ? time_ * 1000 : time_;
}

std::int64_t Holdout::events_used(Split split, std::int64_t count,
                                  std::span<const std::int64_t> times, TimeUnit unit) const {
  if (count < kMinHistory) return 0;
  std::int64_t used = count;
  if (kind_ == Kind::kTime) {
    const auto first = std::lower_bound(times.begin(), times.end(), time_in(unit));
    const auto before = static_cast<std::int64_t>(first - times.begin());
    if (split == Split::kTrain) {
      used = before;
    } else {
      used = before == count ? 0 : before + 1;
    }
  } else {
    const std::int64_t kept_back = kind_ == Kind::kTest ? 1 : 2;
    if (split == Split::kTrain) used = count - kept_back;
    if (split == Split::kValidation) used = count - 1;
  }
  return used < 2 ? 0 : used;  // a target needs something before it
}

}  // namespace turbogr::data
