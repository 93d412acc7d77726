// Writes a world like Yambda to disk: as a sequence store, or as flat files of the published
// columns, CSV or Parquet. `data prepare --format yambda` makes that store of these files. None
// depends on the number of threads.
#pragma once

#include <array>
#include <filesystem>
#include <string_view>

#include "turbogr/core/thread_pool.h"
#include "turbogr/data/synth.h"
#include "turbogr/data/yambda/yambda_world.h"

namespace turbogr::data {

// Signals listen_plus, like and skip (events of other types have none), the event feature
// is_organic, the item features artist_id and album_id. Users and items are numbered from 1, as
// published. SynthStoreOptions::numbers keeps played_ratio_pct and track_length_seconds.
void write_yambda_store(const YambdaWorld& world, ThreadPool& pool,
                        const std::filesystem::path& target, const SynthStoreOptions& options = {});

// multi_event.csv, artist_item_mapping.csv and album_item_mapping.csv, which must not be there yet.
void write_yambda_csv(const YambdaWorld& world, ThreadPool& pool,
                      const std::filesystem::path& folder, const SynthProgress& progress = {});

// The same as Parquet, of the published types. Throws where the Parquet library is not there.
void write_yambda_parquet(const YambdaWorld& world, ThreadPool& pool,
                          const std::filesystem::path& folder, const SynthProgress& progress = {});

// What the files say of an event.
inline constexpr std::array<std::string_view, 5> kYambdaTypes = {"listen", "like", "dislike",
                                                                 "unlike", "undislike"};

}  // namespace turbogr::data
