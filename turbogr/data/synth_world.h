// A synthetic world: who its users are and what each of them did, as a pure function of (options,
// user). Any thread may ask for any user in any order.
//
// A user has a handful of interests (clusters) that drift from session to session. An event mostly
// continues the thread of one interest by following a link from the last item met there; else it is
// a draw by popularity, an old item again, or a look elsewhere. So the next item depends on the
// last one, on older ones where an interest is taken up again, and on the user; popularity alone
// knows little.
//
//   SynthWorld world({.like = "kuairand27k", .users = 1000});
//   SynthHistory history;
//   world.generate(17, history);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "turbogr/data/synth_catalogue.h"
#include "turbogr/data/synth_presets.h"

namespace turbogr::data {

struct SynthOptions {
  std::string like = "kuairand27k";
  std::int64_t users = 1000;
  std::int64_t items = 0;          // 0: what the preset has for so many events
  double mean_length = 0;          // scales every length; 0: the preset's own
  std::int64_t max_length = 0;     // cuts longer histories; 0: none
  double repeats = kSynthRepeats;  // share of events that repeat one of the user's last 64
  std::uint64_t seed = 0;
};

// Bits of an event's signals, in the order of KuaiRand's columns.
inline constexpr std::uint16_t kSynthClick = 1 << 0;
inline constexpr std::uint16_t kSynthLike = 1 << 1;
inline constexpr std::uint16_t kSynthFollow = 1 << 2;
inline constexpr std::uint16_t kSynthComment = 1 << 3;
inline constexpr std::uint16_t kSynthForward = 1 << 4;
inline constexpr std::uint16_t kSynthHate = 1 << 5;
inline constexpr std::uint16_t kSynthLongView = 1 << 6;
inline constexpr std::uint16_t kSynthProfileEnter = 1 << 7;

// One user's events in order; vectors keep their memory from user to user.
struct SynthHistory {
  std::vector<std::uint32_t> items;    // catalogue ids
  std::vector<std::int64_t> times;     // milliseconds since 1970, never down
  std::vector<std::uint16_t> signals;  // kSynthClick, ...
};

// What only raw logs show of an event.
struct SynthDetails {
  std::int64_t play_ms = 0;
  std::int64_t duration_ms = 0;
  std::int64_t profile_stay_ms = 0;
  std::int64_t comment_stay_ms = 0;
  int tab = 0;
};

class SynthWorld {
 public:
  explicit SynthWorld(const SynthOptions& options);

  const SynthPreset& preset() const { return preset_; }
  const SynthCatalogue& catalogue() const { return catalogue_; }
  std::int64_t num_users() const { return static_cast<std::int64_t>(offsets_.size()) - 1; }
  std::int64_t num_events() const { return offsets_.back(); }
  std::int64_t length(std::int64_t user) const {
    return offsets_[static_cast<std::size_t>(user) + 1] - offsets_[static_cast<std::size_t>(user)];
  }
  // Events of all users before `user`.
  std::int64_t offset(std::int64_t user) const { return offsets_[static_cast<std::size_t>(user)]; }

  void generate(std::int64_t user, SynthHistory& history) const;
  SynthDetails details(std::int64_t user, std::int64_t event, std::uint32_t item,
                       std::uint16_t signals) const;

 private:
  double length_rank(std::int64_t user) const;  // in (0, 1): the user's place by length

  SynthOptions options_;
  const SynthPreset& preset_;
  std::uint64_t rank_multiplier_ = 1;
  std::vector<std::int64_t> offsets_;
  SynthCatalogue catalogue_;
  std::vector<double> day_warp_;  // even steps of activity -> share of the day
};

}  // namespace turbogr::data
