// Writes a world like DLRMv3's: as a sequence store, or as the files its own generator writes.
// Neither depends on the number of threads.
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

// A row a user, of 102 blocks (the base, the training steps, one for evaluation, the judged steps)
// of four lists: ids and ratings of candidates, then of what joins the history; empty where the
// user is not there. The block for evaluation, which these worlds do not have, is always empty.
// 100 files of as many users each, 0.csv and so on, or one where users are no multiple of 100; at
// which byte a user's row begins (offset.csv); who is there, step by step (requests_per_ts.csv,
// with where its lines begin and how many users there are up to each file).
void write_dlrmv3_csv(const Dlrmv3World& world, ThreadPool& pool,
                      const std::filesystem::path& folder, const SynthProgress& progress = {});

}  // namespace turbogr::data
