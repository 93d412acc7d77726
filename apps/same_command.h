// Ranks that mpirun has started must all do the same.
#pragma once

#include <string>

#include "turbogr/dist/communicator.h"

namespace turbogr::apps {

// What is compared: the command, or all words of it. `train` compares its configs key by key.
enum class SameCommand { kName, kWords };

// Throws on every rank when one was started otherwise, and names it. Collective; the first thing a
// command does with its ranks.
void check_same_command(dist::Communicator& world, const std::string& name, SameCommand what);

}  // namespace turbogr::apps
