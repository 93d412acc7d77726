// How one user of a synthetic world spends the log's days: sessions, requests, events. SynthWorld
// is the door; this is its inside.
#pragma once

#include <cstdint>
#include <span>

#include "turbogr/data/synth_catalogue.h"
#include "turbogr/data/synth_presets.h"
#include "turbogr/data/world_size.h"

namespace turbogr::data {

struct SynthHistory;

// Users stand at even steps of the length curve, in an order the stride mixes: a world of any size
// has the curve's quantiles.
inline double synth_length_rank(std::int64_t user, std::int64_t users, std::uint64_t stride) {
  const std::uint64_t place =
      (static_cast<std::uint64_t>(user) * stride) % static_cast<std::uint64_t>(users);
  return (static_cast<double>(place) + 0.5) / static_cast<double>(users);
}

struct SynthUser {
  const SynthPreset& preset;
  const SynthCatalogue& catalogue;
  std::span<const double> day_warp;
  std::uint64_t seed;
  std::int64_t user;
  std::int64_t users;  // in the world
  std::int64_t length;
  double length_rank;
  std::int64_t single_begin;  // the single items that are this user's
  std::int64_t single_end;
  double repeats = kSynthRepeats;
};

void generate_synth_user(const SynthUser& user, SynthHistory& history);

}  // namespace turbogr::data
