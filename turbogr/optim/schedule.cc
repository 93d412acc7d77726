#include "turbogr/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "turbogr/core/check.h"

namespace turbogr::optim {

ScheduleKind schedule_from_name(std::string_view name) {
  if (name == "constant") return ScheduleKind::kConstant;
  if (name == "linear") return ScheduleKind::kLinear;
  TGR_CHECK(name == "cosine", "unknown learning-rate schedule '", name,
            "'; use constant, linear or cosine");
  return ScheduleKind::kCosine;
}

double Schedule::factor(std::int64_t step) const {
  if (step < warmup_steps) {
    return static_cast<double>(warmup_from_zero ? step : step + 1) /
           static_cast<double>(warmup_steps);
  }
  if (kind == ScheduleKind::kConstant) return 1;
  TGR_CHECK(total_steps > warmup_steps, "a decaying learning rate over ", total_steps,
            " steps with a warm-up of ", warmup_steps, "; the warm-up must be shorter");
  const double done = std::min(1.0, static_cast<double>(step - warmup_steps) /
                                        static_cast<double>(total_steps - warmup_steps));
  const double shape =
      kind == ScheduleKind::kLinear ? 1 - done : 0.5 * (1 + std::cos(std::numbers::pi * done));
  return floor + (1 - floor) * shape;
}

}  // namespace turbogr::optim
