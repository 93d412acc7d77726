#include "turbogr/data/holdout.h"

#include <fmt/format.h>

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
    return;
  }
  if (text == "validation_test") return;
  const bool share = text.starts_with("last:");
  TGR_CHECK(share || text.starts_with("time:"), "hold-out '", text,
            "'; use test, validation_test, time:T, time:V,T, time:T..E, last:P% or last:V%,P%");
  kind_ = share ? Kind::kLastShare : Kind::kTime;
  std::string_view edges = text.substr(5);
  if (const std::size_t comma = edges.find(','); comma != std::string_view::npos) {
    validation_ = parse_edge(edges.substr(0, comma));
    edges = edges.substr(comma + 1);
  }
  if (const std::size_t dots = edges.find(".."); !share && dots != std::string_view::npos) {
    end_ = parse_edge(edges.substr(dots + 2));
    edges = edges.substr(0, dots);
  }
  test_ = parse_edge(edges);
  TGR_CHECK(!end_ || (end_->is_date == test_.is_date && test_.value < end_->value), "hold-out '",
            printable(text, 80),
            "': the test ends after it began; give two dates or two numbers, the earlier one "
            "first");
  if (!validation_) return;
  if (share) {
    TGR_CHECK(validation_->value + test_.value <= 99, "hold-out '", text, "' keeps back ",
              validation_->value + test_.value,
              "% of each user's events; leave at least 1% to train on");
  } else {
    TGR_CHECK(validation_->is_date == test_.is_date && validation_->value < test_.value,
              "hold-out '", printable(text, 80),
              "': the validation split begins first; give two dates or two numbers, the earlier "
              "one first");
  }
}

Holdout::Edge Holdout::parse_edge(std::string_view text) const {
  Edge edge;
  if (kind_ == Kind::kLastShare) {
    const bool spelt = text.ends_with('%') && parse_integer(text.substr(0, text.size() - 1),
                                                            edge.value) == FieldError::kNone;
    TGR_CHECK(spelt && edge.value >= 1 && edge.value <= 99, "hold-out share '", printable(text, 80),
              "'; give 1% to 99% of each user's events: last:P% keeps the last P% for the test, "
              "last:V%,P% also the V% before them for validation, as in last:10%,20%");
    return edge;
  }
  // Text with a dash inside: 20220501 is a number.
  edge.is_date = guess_time_spelling(text) == TimeSpelling::kIso;
  const FieldError error = edge.is_date ? parse_time(text, TimeSpelling::kIso, edge.value)
                                        : parse_integer(text, edge.value);
  TGR_CHECK(error == FieldError::kNone, "hold-out time '", printable(text, 80),
            "' is neither a number in the store's unit nor a date like 2022-05-01 or "
            "2022-05-01T12:00:00; time:T tests from T on, time:V,T also validates from V to T, "
            "time:T..E tests from T to E");
  return edge;
}

void Holdout::check(Split split, TimeUnit unit) const {
  TGR_CHECK(split != Split::kValidation || has_validation(), "hold-out '", text_,
            "' keeps no validation events; use validation_test, time:V,T or last:V%,P%, or "
            "evaluate on test");
  TGR_CHECK(kind_ != Kind::kTime || unit != TimeUnit::kNone, "hold-out '", text_,
            "' needs times, and the store has only the order of events; use test, validation_test, "
            "last:P% or last:V%,P%");
}

std::int64_t Holdout::Edge::in(TimeUnit unit) const {
  if (!is_date || unit == TimeUnit::kMilliseconds) return value;
  // The first whole second that is not before it.
  return value / 1000 + (value % 1000 > 0 ? 1 : 0);
}

Holdout::Before Holdout::events_before(std::int64_t count, std::span<const std::int64_t> times,
                                       TimeUnit unit) const {
  Before before;
  if (kind_ == Kind::kLastShare) {
    const auto share_of = [&](const Edge& edge) {
      return std::max<std::int64_t>(1, count * edge.value / 100);
    };
    before.test = count - std::min(count, share_of(test_));
    before.validation = before.test;
    if (validation_) before.validation -= std::min(before.test, share_of(*validation_));
    before.end = count;
    return before;
  }
  const auto first_from = [&](const Edge& edge) {
    return std::lower_bound(times.begin(), times.end(), edge.in(unit)) - times.begin();
  };
  before.test = first_from(test_);
  before.validation = validation_ ? first_from(*validation_) : before.test;
  before.end = end_ ? first_from(*end_) : count;
  return before;
}

std::int64_t Holdout::events_used(Split split, std::int64_t count,
                                  std::span<const std::int64_t> times, TimeUnit unit) const {
  if (count < kMinHistory) return 0;
  std::int64_t used = count;
  if (kind_ == Kind::kTime || kind_ == Kind::kLastShare) {
    const Before before = events_before(count, times, unit);
    if (split == Split::kTrain) {
      used = before.validation;
    } else if (split == Split::kValidation) {
      used = before.validation == before.test ? 0 : before.validation + 1;
    } else {
      used = before.test == before.end ? 0 : before.test + 1;
    }
  } else {
    const std::int64_t kept_back = kind_ == Kind::kTest ? 1 : 2;
    if (split == Split::kTrain) used = count - kept_back;
    if (split == Split::kValidation) used = count - 1;
  }
  return used < 2 ? 0 : used;  // a target needs something before it
}

std::string Holdout::wanted_text(Split split) const {
  if (split != Split::kTrain) {
    return fmt::format(
        "wanted: a user with {} events, one of the split and one before it among them",
        kMinHistory);
  }
  const bool one_more = kind_ == Kind::kValidationTest;
  return fmt::format("wanted: a user with {} events, two of which are not held out{}",
                     kMinHistory + (one_more ? 1 : 0),
                     one_more ? " (hold-out 'test' holds back one less)" : "");
}

EventRange Holdout::targets_of(Split split, std::int64_t count, std::span<const std::int64_t> times,
                               TimeUnit unit, std::int64_t targets) const {
  if (kind_ == Kind::kTime || kind_ == Kind::kLastShare) {
    const Before before = events_before(count, times, unit);
    if (split == Split::kTest) return {before.test, before.end};
    return split == Split::kValidation ? EventRange{before.validation, before.test}
                                       : EventRange{0, before.validation};
  }
  const std::int64_t test = std::max<std::int64_t>(0, count - targets);
  if (split == Split::kTest) return {test, count};
  const std::int64_t validation =
      has_validation() ? std::max<std::int64_t>(0, test - targets) : test;
  return split == Split::kValidation ? EventRange{validation, test} : EventRange{0, validation};
}

}  // namespace turbogr::data
