// Writes a world like DLRMv3's as a sequence store. It does not depend on the number of threads.
#pragma once

#include <filesystem>

#include "turbogr/core/thread_pool.h"
#include "turbogr/data/dlrmv3/dlrmv3_world.h"
#include "turbogr/data/synth.h"

namespace turbogr::data {

// Signals rating_1 to rating_5 (an event's rating, rounded down) and liked (3.5 or more), the item
// feature category. Times are milliseconds, one a step from 0 for the base: events of a step are a
// request, and to a model, which counts seconds, all times are the same, as published.
// SynthStoreOptions::numbers keeps the rating.
void write_dlrmv3_store(const Dlrmv3World& world, ThreadPool& pool,
                        const std::filesystem::path& target, const SynthStoreOptions& options = {});

}  // namespace turbogr::data
