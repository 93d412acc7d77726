#include "turbogr/plan/checkpoint_interval.h"

#include <algorithm>
#include <cmath>

#include "turbogr/core/check.h"

namespace turbogr::plan {

CheckpointInterval checkpoint_interval(const CheckpointQuestion& q) {
  TGR_CHECK(q.bytes > 0 && q.writers > 0 && q.disk_gbs > 0 && q.machine_hours > 0 &&
                q.machines > 0 && q.step_seconds > 0,
            "how often to save ", q.bytes, " bytes by ", q.writers, " machines at ", q.disk_gbs,
            " GB/s with ", q.machine_hours, " hours between failures of one of ", q.machines,
            ": all must be above zero");
  CheckpointInterval interval;
  interval.save_seconds = q.bytes / (q.disk_gbs * 1e9 * q.writers);
  interval.failure_seconds = 3600 * q.machine_hours / q.machines;
  interval.seconds = std::sqrt(2 * interval.save_seconds * interval.failure_seconds);
  interval.steps =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(interval.seconds / q.step_seconds));
  interval.saving_share = interval.save_seconds / interval.seconds;
  interval.lost_share = interval.seconds / 2 / interval.failure_seconds;
  return interval;
}

}  // namespace turbogr::plan
