// The items of a synthetic world: clusters of related items, popularity inside a cluster, and links
// from an item to the few that tend to follow it.
//
// A cluster's items are ranked by popularity and cut into levels; items of one level are equally
// popular and a link never leaves its item's level and cluster, so following links leaves the
// popularity law as it is. Items met only once belong to no cluster.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "turbogr/data/synth_presets.h"

namespace turbogr::data {

class SynthCatalogue {
 public:
  static constexpr int kLinks = 4;
  // How often each link of an item is the one taken.
  static constexpr std::array<double, kLinks> kLinkShare = {.5, .25, .15, .1};

  // `items` 0: as many as the preset's ratios give for `events`. Fewer than that keeps the popular
  // ones, as a filter by popularity would. Throws when `items` is too few or too many for ids of 32
  // bits.
  SynthCatalogue(const SynthPreset& preset, std::int64_t events, std::int64_t items,
                 std::uint64_t seed);

  std::int64_t num_items() const { return num_shared_ + num_single_; }
  std::int64_t num_shared() const { return num_shared_; }
  std::int64_t num_single() const { return num_single_; }  // room for items met once
  std::int64_t num_clusters() const { return num_clusters_; }

  // Where in the catalogue a shared item stands.
  struct Place {
    std::uint32_t cluster = 0;
    std::uint32_t level = 0;
    std::uint32_t index = 0;  // inside the level
  };

  std::uint32_t draw_cluster(std::uint32_t bits) const;
  // An item of the cluster, by popularity.
  Place draw(std::uint32_t cluster, std::uint32_t bits) const;
  // The item that link `link` of `from` leads to.
  Place follow(Place from, int link) const;

  // Public ids: a bijection onto [0, num_items()), so that an id tells nothing about its item.
  std::uint32_t id(Place place) const {
    return scramble((levels_[place.level].begin + place.index) *
                        static_cast<std::uint64_t>(num_clusters_) +
                    place.cluster);
  }
  std::uint32_t single_id(std::int64_t index) const {
    return scramble(static_cast<std::uint64_t>(num_shared_ + index));
  }

 private:
  struct Level {
    std::uint32_t begin;      // rank of its first item
    std::uint32_t size;       // items, the same in every cluster but perhaps for the last level
    std::uint32_t bits_from;  // of draw's 32 bits
    double items_per_bit;
  };

  std::uint32_t scramble(std::uint64_t number) const {
    return static_cast<std::uint32_t>((number * multiplier_ + shift_) %
                                      static_cast<std::uint64_t>(num_items()));
  }
  // The last level loses an item in clusters beyond the remainder of items / clusters.
  std::uint32_t level_size(std::uint32_t cluster, std::uint32_t level) const {
    const bool shorter = level + 1 == levels_.size() && cluster >= full_clusters_;
    return levels_[level].size - (shorter ? 1u : 0u);
  }
  void make_levels(const SynthPreset& preset, double kept_share);
  void make_clusters();

  std::int64_t num_shared_ = 0;
  std::int64_t num_single_ = 0;
  std::int64_t num_clusters_ = 0;
  std::uint32_t full_clusters_ = 0;
  std::uint64_t seed_;
  std::uint64_t multiplier_ = 1;
  std::uint64_t shift_ = 0;
  std::vector<Level> levels_;
  std::vector<std::uint32_t> cluster_bits_;  // cumulative weights; cluster k ends at [k]
  std::vector<std::uint32_t> guide_;         // first cluster to look at, by the top bits
};

}  // namespace turbogr::data
