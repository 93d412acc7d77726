// The tracks of a world like Yambda: how often each is met, who made it, on which album, how long
// it is. Tracks of an artist are neighbours; popularity is spread over them by a permutation.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace turbogr::data {

class YambdaCatalogue {
 public:
  static constexpr int kTastes = 16;

  YambdaCatalogue(std::int64_t items, std::uint64_t seed);

  std::int64_t num_items() const { return static_cast<std::int64_t>(artists_.size()); }
  std::int64_t num_artists() const { return num_artists_; }
  std::int64_t num_albums() const { return num_albums_; }

  // An item by popularity; u in [0, 1).
  std::uint32_t item_at(double u) const;
  // From 1; 0: nobody knows.
  std::int32_t artist(std::uint32_t item) const { return artists_[item]; }
  std::int32_t album(std::uint32_t item) const { return albums_[item]; }
  // Of an item's artist; zeros where nobody knows the artist.
  std::span<const float, kTastes> taste(std::uint32_t item) const {
    return std::span<const float, kTastes>(
        tastes_.data() + static_cast<std::size_t>(artists_[item]) * kTastes, kTastes);
  }
  // How well liked a track is whoever listens, mean 0 and variance 1.
  double appeal(std::uint32_t item) const;
  std::int64_t seconds(std::uint32_t item) const;  // of the track, a multiple of 5

 private:
  // Ranks from `first` on are met `count` times, falling by a power law to the next piece.
  struct Piece {
    double first = 0, last = 0;
    double mass_before = 0, mass = 0;
    double exponent = 0;  // count ~ rank^exponent
  };
  void make_artists();
  void make_popularity();

  std::uint64_t seed_;
  std::int64_t num_artists_ = 0, num_albums_ = 0;
  std::vector<std::int32_t> artists_, albums_;
  std::vector<float> tastes_;  // [artists + 1, kTastes]
  std::vector<Piece> popularity_;
  std::uint64_t stride_ = 1;
};

}  // namespace turbogr::data
