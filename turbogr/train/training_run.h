// A whole run, as `turbogr train` makes it: data, trainer, schedule of evaluations and checkpoints,
// figures.
#pragma once

#include <string>

#include "turbogr/dist/communicator.h"
#include "turbogr/train/config.h"

namespace turbogr::train {

// Returns when the run has ended or was asked to stop by SIGINT or SIGTERM (after a checkpoint).
// `command` is how it was started, kept with every checkpoint. Every rank of `world` calls it with
// the same config; rank 0 speaks and writes.
void run_training(const Config& config, const std::string& command, dist::Communicator& world);

}  // namespace turbogr::train
