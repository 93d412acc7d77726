// Learning-rate schedules: a factor on the base rate, as a function of the step alone.
#pragma once

#include <cstdint>
#include <string_view>

namespace turbogr::optim {

enum class ScheduleKind : std::uint8_t { kConstant, kLinear, kCosine };

ScheduleKind schedule_from_name(std::string_view name);  // constant, linear or cosine

struct Schedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  std::int64_t warmup_steps = 0;  // rises linearly from 1 / warmup_steps to 1
  std::int64_t total_steps = 0;   // where linear and cosine reach `floor`; they need it
  double floor = 0;               // lowest factor of linear and cosine
  // The warm-up rises from 0 instead: the first step moves no weight, but gives the optimisers
  // their first gradients.
  bool warmup_from_zero = false;

  // Of step `step`, counted from 0.
  double factor(std::int64_t step) const;
};

}  // namespace turbogr::optim
