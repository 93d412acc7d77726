// Which events are trained on and which are kept back.
//
//   test             all but a user's last event are trained on; the last is the test target
//   validation_test  the last two are kept back: validation target, then test target
//   time:T           everything from T on is kept back; the first such event is the test target
//   time:V,T         the same, and what is from V on, before T, for validation
//   time:T..E        (or time:V,T..E) the test ends before E; what comes later is in no split
//   last:P%          a user's last P percent, at least one event, likewise
//   last:V%,P%       the same, and the V percent before them, at least one event, for validation
//
// The ranking task judges several events at a time: with test and validation_test the last m events
// are a user's test targets and the m before those the validation targets; with the other two all
// that is kept back is.
//
// V, T and E are numbers in the store's own unit, or dates: 2022-05-01, 2022-05-01T12:00:00,
// 2022-05-01 12:00+02:00; in UTC unless they name a zone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "turbogr/data/manifest.h"

namespace turbogr::data {

enum class Split : std::uint8_t { kTrain, kValidation, kTest };
std::string_view name_of(Split split);  // train, validation, test

// Users with fewer events than this have no part in any split.
inline constexpr std::int64_t kMinHistory = 3;

// Events of a user, counted from its first one.
struct EventRange {
  std::int64_t begin = 0, end = 0;
};

class Holdout {
 public:
  Holdout() = default;                      // validation_test
  explicit Holdout(std::string_view text);  // throws on other words, listing those known
  const std::string& text() const { return text_; }

  // Throws when there are no such events to speak of: a validation split without one, times that a
  // store does not have.
  void check(Split split, TimeUnit unit) const;

  // What the split takes of a history of `count` events: the number of its first events in use.
  // For kTrain all of these are trained on; else the last of them is the target. 0: the user has no
  // part in it. `times` are asked for by time:T only.
  std::int64_t events_used(Split split, std::int64_t count, std::span<const std::int64_t> times,
                           TimeUnit unit) const;
  // Ranking: which events of a history of `count` are targets of the split; none where it is empty.
  EventRange targets_of(Split split, std::int64_t count, std::span<const std::int64_t> times,
                        TimeUnit unit, std::int64_t targets) const;
  // What a user must have to take part in the split, for messages: "wanted: a user with ...".
  std::string wanted_text(Split split) const;
  bool by_time() const { return kind_ == Kind::kTime; }
  bool has_validation() const { return kind_ == Kind::kValidationTest || validation_.has_value(); }

 private:
  enum class Kind : std::uint8_t { kTest, kValidationTest, kTime, kLastShare };
  // A time, or a share of a user's events in percent.
  struct Edge {
    std::int64_t value = 0;
    bool is_date = false;  // then in milliseconds since 1970
    std::int64_t in(TimeUnit unit) const;
  };
  Edge parse_edge(std::string_view text) const;
  // Events before those kept back for the test, and before those for validation too, where these
  // are not a fixed number; and those before the test's end.
  struct Before {
    std::int64_t validation = 0, test = 0, end = 0;
  };
  Before events_before(std::int64_t count, std::span<const std::int64_t> times,
                       TimeUnit unit) const;

  Kind kind_ = Kind::kValidationTest;
  Edge test_;
  std::optional<Edge> validation_, end_;
  std::string text_ = "validation_test";
};

}  // namespace turbogr::data
