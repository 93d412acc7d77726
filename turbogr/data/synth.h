// Writes a synthetic world to disk: as a sequence store, or as raw logs in KuaiRand's own files.
// Both hold the same events, and neither depends on the number of threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "turbogr/core/thread_pool.h"
#include "turbogr/data/synth_world.h"

namespace turbogr::data {

// Called now and then from the writing thread with the events done so far, of num_events().
using SynthProgress = std::function<void(std::int64_t events)>;

struct SynthStoreOptions {
  bool overwrite = false;  // a store that is there
  bool numbers = false;    // keep play_time_ms and duration_ms too, as prepare does
  SynthProgress progress = {};
};

// Only items that some user met are in the store; their original ids are the catalogue's. The bytes
// are those that preparing the raw logs gives.
void write_synth_store(const SynthWorld& world, ThreadPool& pool,
                       const std::filesystem::path& target, const SynthStoreOptions& options = {});

// The 19 columns of KuaiRand-27K's standard logs, in its four files: rows go to a file pair by date
// and to a part by odd and even days, so that every file holds nearly all users. Only for presets
// that cover KuaiRand's days. The folder must not hold such files already.
void write_synth_csv(const SynthWorld& world, ThreadPool& pool, const std::filesystem::path& folder,
                     const SynthProgress& progress = {});

}  // namespace turbogr::data
