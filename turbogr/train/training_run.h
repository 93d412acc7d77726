// A whole run, as `turbogr train` makes it: data, trainer, schedule of evaluations and checkpoints,
// figures.
#pragma once

#include <string>

#include "turbogr/train/config.h"

namespace turbogr::train {

// Returns when the run has ended or was asked to stop by SIGINT or SIGTERM (after a checkpoint).
// `command` is how it was started, kept with every checkpoint.
void run_training(const Config& config, const std::string& command);

}  // namespace turbogr::train
