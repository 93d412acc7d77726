#include "turbogr/data/yambda/yambda_catalogue.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "turbogr/core/check.h"
#include "turbogr/core/philox.h"
#include "turbogr/data/synth_presets.h"

namespace turbogr::data {
namespace {

// Streams of the seed.
constexpr std::uint64_t kArtistStream = 1;
constexpr std::uint64_t kStrideStream = 2;
constexpr std::uint64_t kTasteStream = std::uint64_t{1} << 40;       // + artist
constexpr std::uint64_t kYambdaItemStream = std::uint64_t{2} << 40;  // + item

constexpr double kTracksAnArtist = 7.2;
constexpr double kTracksAnAlbum = 8'653'783.0 / 3'367'691.0;
constexpr double kWithoutArtist = 1 - 9'270'506.0 / 9'390'623.0;
constexpr double kWithoutAlbum = 1 - 8'653'783.0 / 9'390'623.0;

// Rank of a track by listens and its listens, of the 877,168 tracks heard in the set of 10,000
// users.
constexpr double kHeard = 877'168;
constexpr CurvePoint kListens[] = {{1, 41'984},    {10, 29'602},  {1'000, 4'700},
                                   {8'772, 1'150}, {64'105, 100}, {219'292, 12},
                                   {438'584, 3},   {564'000, 1},  {kHeard, 1}};
// Share of tracks -> seconds: the median is 200, nine in ten are 275 or less.
constexpr CurvePoint kSeconds[] = {{0, 5}, {.05, 100}, {.5, 200}, {.9, 275}, {.99, 480}, {1, 2495}};

// Artists with k or more tracks are a share k^-exponent of all, up to `largest`: the exponent that
// gives the wanted mean.
double artist_exponent(double mean, std::int64_t largest) {
  const auto mean_of = [&](double exponent) {
    double sum = 0;
    for (std::int64_t k = 1; k <= largest; ++k) sum += std::pow(static_cast<double>(k), -exponent);
    return sum;
  };
  double low = 0, high = 4;  // the mean falls as the exponent rises
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (mean_of(middle) > mean ? low : high) = middle;
  }
  return (low + high) / 2;
}

double integral(double from, double to, double exponent) {
  if (std::abs(exponent + 1) < 1e-9) return std::log(to / from);
  return (std::pow(to, exponent + 1) - std::pow(from, exponent + 1)) / (exponent + 1);
}

}  // namespace

YambdaCatalogue::YambdaCatalogue(std::int64_t items, std::uint64_t seed) : seed_(seed) {
  TGR_CHECK(items >= 10 && items < (std::int64_t{1} << 31), "a catalogue of ", items,
            " tracks; from 10 to 2^31 - 1 are possible");
  artists_.resize(static_cast<std::size_t>(items));
  albums_.resize(static_cast<std::size_t>(items));
  make_artists();
  make_popularity();
  PhiloxStream random(seed, kStrideStream);
  do {
    stride_ = 1 + random.below(static_cast<std::uint64_t>(items) - 1);
  } while (std::gcd(stride_, static_cast<std::uint64_t>(items)) != 1);
}

void YambdaCatalogue::make_artists() {
  PhiloxStream random(seed_, kArtistStream);
  const std::int64_t items = num_items();
  const std::int64_t largest = std::clamp<std::int64_t>(items / 20, 8, 5000);
  const double exponent = artist_exponent(kTracksAnArtist, largest);
  std::int64_t artist_end = 0, album_end = 0;
  for (std::int64_t item = 0; item < items; ++item) {
    if (item == artist_end) {
      ++num_artists_;
      const double size = std::pow(1 - random.uniform(), -1 / exponent);
      artist_end += std::clamp<std::int64_t>(static_cast<std::int64_t>(size), 1, largest);
      album_end = item;
    }
    if (item == album_end) {
      ++num_albums_;
      const double size = 1 + std::log(1 - random.uniform()) / std::log(1 - 1 / kTracksAnAlbum);
      album_end += std::max<std::int64_t>(1, static_cast<std::int64_t>(size));
    }
    const auto at = static_cast<std::size_t>(item);
    artists_[at] = random.uniform() < kWithoutArtist ? 0 : static_cast<std::int32_t>(num_artists_);
    albums_[at] = random.uniform() < kWithoutAlbum ? 0 : static_cast<std::int32_t>(num_albums_);
  }
  tastes_.assign(static_cast<std::size_t>(num_artists_ + 1) * kTastes, 0.0f);
  for (std::int64_t artist = 1; artist <= num_artists_; ++artist) {
    PhiloxStream own(seed_, kTasteStream + static_cast<std::uint64_t>(artist));
    for (int t = 0; t < kTastes; ++t) {
      tastes_[static_cast<std::size_t>(artist * kTastes + t)] =
          static_cast<float>(0.5 * own.normal());
    }
  }
}

void YambdaCatalogue::make_popularity() {
  const double scale = static_cast<double>(num_items()) / kHeard;
  double mass = 0;
  for (std::size_t i = 0; i + 1 < std::size(kListens); ++i) {
    const CurvePoint low = kListens[i], high = kListens[i + 1];
    Piece piece{.first = low.x * scale, .last = high.x * scale, .mass_before = mass};
    piece.exponent = std::log(high.y / low.y) / std::log(high.x / low.x);
    // Counts at the piece's beginning are low.y whatever the scale.
    piece.mass = low.y * std::pow(piece.first, -piece.exponent) *
                 integral(piece.first, piece.last, piece.exponent);
    mass += piece.mass;
    popularity_.push_back(piece);
  }
  for (Piece& piece : popularity_) {
    piece.mass_before /= mass;
    piece.mass /= mass;
  }
}

std::uint32_t YambdaCatalogue::item_at(double u) const {
  const auto after = std::ranges::upper_bound(popularity_, u, {}, &Piece::mass_before);
  const Piece& piece = *std::prev(after);
  const double share = std::min(1.0, (u - piece.mass_before) / piece.mass);
  const double power = piece.exponent + 1;
  const double low = std::pow(piece.first, power), high = std::pow(piece.last, power);
  const double rank = std::abs(power) < 1e-9
                          ? piece.first * std::pow(piece.last / piece.first, share)
                          : std::pow(low + (high - low) * share, 1 / power);
  const auto items = static_cast<std::uint64_t>(num_items());
  const std::uint64_t place = std::min(static_cast<std::uint64_t>(rank), items - 1);
  return static_cast<std::uint32_t>(place * stride_ % items);
}

double YambdaCatalogue::appeal(std::uint32_t item) const {
  return PhiloxStream(seed_, kYambdaItemStream + item).normal();
}

std::int64_t YambdaCatalogue::seconds(std::uint32_t item) const {
  PhiloxStream random(seed_ + 1, kYambdaItemStream + item);
  const double seconds = curve_linear(kSeconds, random.uniform());
  return std::clamp<std::int64_t>(5 * std::llround(seconds / 5), 5, 2495);
}

}  // namespace turbogr::data
