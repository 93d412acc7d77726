#include "turbogr/data/holdout.h"

#include <algorithm>

#include "turbogr/core/check.h"
#include "turbogr/data/field.h"

namespace turbogr::data {
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
    // Text with a dash inside: 20220501 is a number.
    time_is_date_ = guess_time_spelling(when) == TimeSpelling::kIso;
    const FieldError error =
        time_is_date_ ? parse_time(when, TimeSpelling::kIso, time_) : parse_integer(when, time_);
    TGR_CHECK(error == FieldError::kNone, "hold-out time '", printable(when, 80),
              "' is neither a number in the store's unit nor a date like 2022-05-01 or "
              "2022-05-01T12:00:00");
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
  if (!time_is_date_ || unit == TimeUnit::kMilliseconds) return time_;
  // The first whole second that is not before it.
  return time_ / 1000 + (time_ % 1000 > 0 ? 1 : 0);
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
