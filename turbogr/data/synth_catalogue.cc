#include "turbogr/data/synth_catalogue.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "turbogr/core/check.h"
#include "turbogr/core/philox.h"

namespace turbogr::data {
namespace {

constexpr std::uint64_t kLinkStream = 0x6c696e6b;
constexpr std::uint64_t kClusterStream = 0x636c7573;
constexpr std::uint64_t kIdStream = 0x69647320;
constexpr std::int64_t kMinItems = 64;
constexpr double kClusterSpread = 0.5;  // of the log of clusters' popularity
// In a small world the published curve's head would let ten items take half of all events; no item
// is allowed more than this share. At the published size the most popular has 0.00005.
constexpr double kLargestShare = 0.002;
constexpr int kGuideBits = 12;

// Few enough clusters that each has items of every popularity, enough that interests differ.
std::int64_t clusters_for(std::int64_t items) {
  return std::max<std::int64_t>(items / 16384, std::clamp<std::int64_t>(items / 64, 1, 64));
}

}  // namespace

SynthCatalogue::SynthCatalogue(const SynthPreset& preset, std::int64_t events, std::int64_t items,
                               std::uint64_t seed)
    : seed_(seed) {
  TGR_CHECK(items == 0 || items >= kMinItems, "synth: ", items, " items; a world needs at least ",
            kMinItems);
  const auto natural_shared = std::max<std::int64_t>(
      kMinItems, std::llround(static_cast<double>(events) / preset.events_per_shared));
  const auto natural_single = std::llround(static_cast<double>(events) * preset.single_share);
  if (items == 0) items = preset.items != 0 ? preset.items : natural_shared + natural_single;
  TGR_CHECK(items < (std::int64_t{1} << 32), "synth: ", items,
            " items do not fit ids of 32 bits; ask for fewer with --items");
  double kept_share = 1;
  if (preset.single_share == 0) {
    num_shared_ = items;
  } else if (items <= natural_shared) {
    num_shared_ = items;
    kept_share = static_cast<double>(items) / static_cast<double>(natural_shared);
  } else {
    num_single_ = std::min<std::int64_t>(natural_single, items - natural_shared);
    num_shared_ = items - num_single_;
  }
  num_clusters_ = clusters_for(num_shared_);
  full_clusters_ = static_cast<std::uint32_t>(num_shared_ % num_clusters_);
  if (full_clusters_ == 0) full_clusters_ = static_cast<std::uint32_t>(num_clusters_);
  make_levels(preset, kept_share);
  make_clusters();

  PhiloxStream random(seed, kIdStream);
  const auto total = static_cast<std::uint64_t>(num_items());
  do {
    multiplier_ = 1 + random.below(total - 1);
  } while (std::gcd(multiplier_, total) != 1);
  shift_ = random.below(total);
}

void SynthCatalogue::make_levels(const SynthPreset& preset, double kept_share) {
  const std::int64_t size = (num_shared_ + num_clusters_ - 1) / num_clusters_;
  const double kept_events = curve_linear(preset.popularity, kept_share);
  std::vector<double> shares;
  // Half-octave levels from four items up; the last takes what is left, at least four, so that a
  // cluster one item short still has it.
  for (std::int64_t begin = 0; begin < size;) {
    std::int64_t end = begin < 4 ? 4 : begin + std::max<std::int64_t>(4, begin / 2);
    if (size - end < 4) end = size;
    levels_.push_back({.begin = static_cast<std::uint32_t>(begin),
                       .size = static_cast<std::uint32_t>(end - begin),
                       .bits_from = 0,
                       .items_per_bit = 0});
    const auto at = [&](std::int64_t rank) {
      const double share = static_cast<double>(rank) / static_cast<double>(size);
      return curve_linear(preset.popularity, share * kept_share) / kept_events;
    };
    shares.push_back(at(end) - at(begin));
    begin = end;
  }

  // Cut the head to the largest share an item may have, and give what was cut to the rest.
  const double largest =
      std::max(kLargestShare * static_cast<double>(num_clusters_), 4.0 / static_cast<double>(size));
  std::size_t cut = 0;
  double free_share = 1;
  double rest = 1;
  for (; cut < levels_.size(); ++cut) {
    const double cap = largest * levels_[cut].size;
    if (shares[cut] * free_share / rest <= cap) break;
    rest -= shares[cut];
    free_share -= cap;
    shares[cut] = cap;
  }
  for (std::size_t i = cut; i < levels_.size(); ++i) shares[i] *= free_share / rest;

  const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
  double cumulative = 0;
  for (std::size_t i = 0; i < levels_.size(); ++i) {
    const double width = shares[i] / total * 0x1p32;
    levels_[i].bits_from = static_cast<std::uint32_t>(cumulative);
    levels_[i].items_per_bit = levels_[i].size / width;
    cumulative += width;
  }
}

void SynthCatalogue::make_clusters() {
  PhiloxStream random(seed_, kClusterStream);
  std::vector<double> weights(static_cast<std::size_t>(num_clusters_));
  for (double& weight : weights) weight = std::exp(kClusterSpread * random.normal());
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double cumulative = 0;
  for (const double weight : weights) {
    cumulative += weight / total;
    cluster_bits_.push_back(static_cast<std::uint32_t>(std::min(cumulative * 0x1p32, 4294967295.)));
  }
  cluster_bits_.back() = 0xffffffffu;
  for (std::uint32_t slot = 0; slot < (1u << kGuideBits); ++slot) {
    const std::uint32_t from = slot << (32 - kGuideBits);
    guide_.push_back(static_cast<std::uint32_t>(
        std::lower_bound(cluster_bits_.begin(), cluster_bits_.end(), from) -
        cluster_bits_.begin()));
  }
}

std::uint32_t SynthCatalogue::draw_cluster(std::uint32_t bits) const {
  std::uint32_t cluster = guide_[bits >> (32 - kGuideBits)];
  while (cluster_bits_[cluster] < bits) ++cluster;
  return cluster;
}

SynthCatalogue::Place SynthCatalogue::draw(std::uint32_t cluster, std::uint32_t bits) const {
  std::uint32_t level = 0;
  while (level + 1 < levels_.size() && levels_[level + 1].bits_from <= bits) ++level;
  const double index = (bits - levels_[level].bits_from) * levels_[level].items_per_bit;
  return {.cluster = cluster,
          .level = level,
          .index = std::min(static_cast<std::uint32_t>(index), level_size(cluster, level) - 1)};
}

SynthCatalogue::Place SynthCatalogue::follow(Place from, int link) const {
  const std::uint32_t size = level_size(from.cluster, from.level);
  // A step round the level's ring, different for every ring and link: a permutation of the level.
  std::uint64_t step = (seed_ ^ kLinkStream) + from.cluster * 0x9e3779b97f4a7c15ull +
                       from.level * 0xc2b2ae3d27d4eb4full +
                       static_cast<std::uint64_t>(link) * 0x165667b19e3779f9ull;
  step = (step ^ (step >> 31)) * 0xbf58476d1ce4e5b9ull;
  const auto hash = static_cast<std::uint32_t>(step >> 32);
  const std::uint32_t offset =
      1 + static_cast<std::uint32_t>((std::uint64_t{hash} * (size - 1)) >> 32);
  std::uint32_t index = from.index + offset;
  if (index >= size) index -= size;
  from.index = index;
  return from;
}

}  // namespace turbogr::data
