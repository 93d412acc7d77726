// Which events are trained on and which are kept back.
//
//   test             all but a user's last event are trained on; the last is the test target
//   validation_test  the last two are kept back: validation target, then test target
//   time:T           everything from T on is kept back; the first such event is the test target
//
// T is a number in the store's own unit, or a date: 2022-05-01, 2022-05-01T12:00:00,
// 2022-05-01 12:00+02:00; in UTC unless it names a zone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "turbogr/data/manifest.h"

namespace turbogr::data {

enum class Split : std::uint8_t { kTrain, kValidation, kTest };
std::string_view name_of(Split split);  // train, validation, test

// Users with fewer events than this have no part in any split.
inline constexpr std::int64_t kMinHistory = 3;

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
  bool by_time() const { return kind_ == Kind::kTime; }

 private:
  enum class Kind : std::uint8_t { kTest, kValidationTest, kTime };
  std::int64_t time_in(TimeUnit unit) const;

  Kind kind_ = Kind::kValidationTest;
  std::int64_t time_ = 0;
  bool time_is_date_ = false;  // then in milliseconds since 1970
  std::string text_ = "validation_test";
};

}  // namespace turbogr::data
