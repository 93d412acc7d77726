// How often to save, from how long a save takes and how often something fails (Young's rule: the
// square root of twice the one times the other loses least).
#pragma once

#include <cstdint>

namespace turbogr::plan {

struct CheckpointQuestion {
  double bytes = 0;          // of a checkpoint
  int writers = 1;           // machines that write it
  double disk_gbs = 2;       // each
  double machine_hours = 0;  // between failures of one machine
  int machines = 1;          // any of which ends the run
  double step_seconds = 1;
};

struct CheckpointInterval {
  double save_seconds = 0;
  double failure_seconds = 0;  // between failures of the cluster
  double seconds = 0;          // between saves
  std::int64_t steps = 0;      // the same, at least 1
  // Of the time: saving, and what was computed since the last save when something fails.
  double saving_share = 0, lost_share = 0;
};

CheckpointInterval checkpoint_interval(const CheckpointQuestion& question);

}  // namespace turbogr::plan
