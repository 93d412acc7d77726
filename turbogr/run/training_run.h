// A whole run, as `turbogr train` makes it: data, trainer, schedule of evaluations and checkpoints,
// figures.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "turbogr/dist/communicator.h"
#include "turbogr/run/config.h"
#include "turbogr/run/metrics.h"

namespace turbogr::run {

// For whoever trains many models in turn, or from inside another program.
struct RunControl {
  std::int64_t pause_after = 0;  // stop with a checkpoint after so many epochs in all; 0: never
  bool quiet = false;            // no plan and no figures on standard output; warnings stay
  bool progress = true;          // false: nothing on standard error either, whatever log.progress
  // Told, by rank 0, of every line of figures and every evaluation once it is written.
  std::function<void(const MetricRecord&)> on_record;
};

enum class RunEnd { kFinished, kPaused, kInterrupted };

// Returns when the run has ended, is to pause, or was asked to stop by SIGINT or SIGTERM (the two
// after a checkpoint). `command` is how it was started, kept with every checkpoint. Every rank of
// `world` calls it with the same config; rank 0 speaks and writes.
RunEnd run_training(const Config& config, const std::string& command, dist::Communicator& world,
                    const RunControl& control = {});

}  // namespace turbogr::run
