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
  } else if (text.starts_with("last:")) {
    kind_ = Kind::kLastShare;
    const std::string_view share = text.substr(5);
    const bool spelt = share.ends_with('%') && parse_integer(share.substr(0, share.size() - 1),
                                                             percent_) == FieldError::kNone;
    TGR_CHECK(spelt && percent_ >= 1 && percent_ <= 99, "hold-out share '", printable(share, 80),
              "'; give 1% to 99% of each user's events, as in last:20%");
  } else {
    TGR_CHECK(text.starts_with("time:"), "hold-out '", text,
              "'; use test, validation_test, time:T or last:P%");
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

std::int64_t Holdout::events_before(std::int64_t count, std::span<const std::int64_t> times,
                                    TimeUnit unit) const {
  if (kind_ == Kind::kLastShare) {
    return count - std::min(count, std::max<std::int64_t>(1, count * percent_ / 100));
  }
  const auto first = std::lower_bound(times.begin(), times.end(), time_in(unit));
  return static_cast<std::int64_t>(first - times.begin());
}

std::int64_t Holdout::events_used(Split split, std::int64_t count,
                                  std::span<const std::int64_t> times, TimeUnit unit) const {
  if (count < kMinHistory) return 0;
  std::int64_t used = count;
  if (kind_ == Kind::kTime || kind_ == Kind::kLastShare) {
    const std::int64_t before = events_before(count, times, unit);
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

EventRange Holdout::targets_of(Split split, std::int64_t count, std::span<const std::int64_t> times,
                               TimeUnit unit, std::int64_t targets) const {
  if (kind_ == Kind::kTime || kind_ == Kind::kLastShare) {
    const std::int64_t before = events_before(count, times, unit);
    return split == Split::kTrain ? EventRange{0, before} : EventRange{before, count};
  }
  const std::int64_t test = std::max<std::int64_t>(0, count - targets);
  if (split == Split::kTest) return {test, count};
  const std::int64_t validation =
      has_validation() ? std::max<std::int64_t>(0, test - targets) : test;
  return split == Split::kValidation ? EventRange{validation, test} : EventRange{0, validation};
}

}  // namespace turbogr::data
