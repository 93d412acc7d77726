#include "turbogr/data/synth_world.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "turbogr/core/check.h"
#include "turbogr/core/philox.h"
#include "turbogr/data/synth_user.h"

namespace turbogr::data {
namespace {

constexpr std::uint64_t kRankStream = 0x72616e6b;
constexpr std::uint64_t kDetailStream = std::uint64_t{1} << 62;
constexpr std::uint64_t kItemStream = std::uint64_t{1} << 61;
constexpr int kWarpSteps = 24 * 64;

const SynthOptions& checked(const SynthOptions& options) {
  check_world_size({options.users, options.mean_length, options.max_length});
  TGR_CHECK(options.repeats >= 0 && options.repeats <= .9, "synth: a share of repeats of ",
            options.repeats, "; use 0 to 0.9");
  return options;
}

// A multiplier that walks all residues below `count` and does not keep neighbours together.
std::uint64_t stride_of(std::uint64_t count, std::uint64_t seed) {
  if (count == 1) return 1;
  PhiloxStream random(seed, kRankStream);
  std::uint64_t stride = 0;
  do {
    stride = 1 + random.below(count - 1);
  } while (std::gcd(stride, count) != 1);
  return stride;
}

std::vector<std::int64_t> offsets_from(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> offsets(lengths.size() + 1, 0);
  std::partial_sum(lengths.begin(), lengths.end(), offsets.begin() + 1);
  return offsets;
}

std::vector<std::int64_t> user_lengths(const SynthOptions& options, const SynthPreset& preset,
                                       std::uint64_t stride) {
  const double scale =
      options.mean_length == 0 ? 1.0 : options.mean_length / curve_log_mean(preset.length);
  std::vector<std::int64_t> lengths;
  for (std::int64_t user = 0; user < options.users; ++user) {
    const double rank = synth_length_rank(user, options.users, stride);
    auto length = std::max<std::int64_t>(std::llround(scale * curve_log(preset.length, rank)),
                                         kSynthMinLength);
    if (options.max_length != 0) length = std::min(length, options.max_length);
    lengths.push_back(length);
  }
  return lengths;
}

std::vector<double> warp_of(std::span<const double> hours) {
  const double total = std::accumulate(hours.begin(), hours.end(), 0.0);
  std::vector<double> warp;
  std::size_t hour = 0;
  double before = 0;
  for (int step = 0; step <= kWarpSteps; ++step) {
    const double wanted = total * step / kWarpSteps;
    while (hour + 1 < hours.size() && before + hours[hour] < wanted) before += hours[hour++];
    warp.push_back((static_cast<double>(hour) + (wanted - before) / hours[hour]) /
                   static_cast<double>(hours.size()));
  }
  warp.back() = 1;
  return warp;
}

}  // namespace

SynthWorld::SynthWorld(const SynthOptions& options)
    : options_(checked(options)),
      preset_(synth_preset(options.like)),
      rank_multiplier_(stride_of(static_cast<std::uint64_t>(options.users), options.seed)),
      offsets_(offsets_from(user_lengths(options, preset_, rank_multiplier_))),
      catalogue_(preset_, offsets_.back(), options.items, options.seed),
      day_warp_(warp_of(preset_.hour_weight)) {}

double SynthWorld::length_rank(std::int64_t user) const {
  return synth_length_rank(user, options_.users, rank_multiplier_);
}

void SynthWorld::generate(std::int64_t user, SynthHistory& history) const {
  TGR_CHECK(user >= 0 && user < num_users(), "synth: user ", user, " of a world of ", num_users());
  const double single_per_event =
      static_cast<double>(catalogue_.num_single()) / static_cast<double>(num_events());
  const auto singles_before = [&](std::int64_t events) {
    return static_cast<std::int64_t>(static_cast<double>(events) * single_per_event);
  };
  const std::int64_t begin = offset(user);
  const std::int64_t length = this->length(user);
  generate_synth_user(
      {.preset = preset_,
       .catalogue = catalogue_,
       .day_warp = day_warp_,
       .seed = options_.seed,
       .user = user,
       .users = num_users(),
       .length = length,
       .length_rank = length_rank(user),
       .single_begin = singles_before(begin),
       .single_end = std::min(singles_before(begin + length), catalogue_.num_single()),
       .repeats = options_.repeats},
      history);
}

SynthDetails SynthWorld::details(std::int64_t user, std::int64_t event, std::uint32_t item,
                                 std::uint16_t signals) const {
  const auto draw = philox(options_.seed, static_cast<std::uint64_t>(event),
                           kDetailStream + static_cast<std::uint64_t>(user));
  // A duration belongs to the item; half are below 27 s, nine in ten below 169 s.
  PhiloxStream item_random(options_.seed, kItemStream + item);
  SynthDetails details;
  details.duration_ms = std::llround(27000 * std::exp(1.43 * item_random.normal()));
  details.duration_ms = std::clamp<std::int64_t>(details.duration_ms, 33, 32424500);
  const double part = uniform_float(draw[0]);
  const auto duration = static_cast<double>(details.duration_ms);
  if ((signals & kSynthLongView) != 0) {
    details.play_ms = std::llround(duration * (.7 + .6 * part));
  } else if ((signals & kSynthClick) != 0) {
    details.play_ms = std::llround(duration * (.1 + .6 * part));
  } else {
    details.play_ms = std::llround(std::min(duration * .3, 3000.) * part);
  }
  if ((signals & kSynthProfileEnter) != 0) details.profile_stay_ms = 500 + draw[1] % 30000;
  if ((signals & kSynthComment) != 0) details.comment_stay_ms = 1000 + draw[2] % 60000;
  const std::uint32_t tab = draw[3] % 1000;  // the five tabs with more than one event in a hundred
  details.tab = tab < 675 ? 1 : tab < 875 ? 0 : tab < 952 ? 4 : tab < 983 ? 2 : 6;
  return details;
}

}  // namespace turbogr::data
