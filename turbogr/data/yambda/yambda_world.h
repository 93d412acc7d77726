// A world of music listeners like Yambda, one that can be learnt: tracks belong to artists and
// albums, users and artists have tastes (vectors), a user meets tracks by popularity and taste, and
// listens to at least half of one by a logit of taste, track, hour and whether it was the user's
// own choice. The logit's spread is set so that who knows the world reaches a wanted AUC (the
// Bayes AUC): no model can do better on average.
//
// Lengths, popularity, sessions, shares of event types and of recommendations are the published
// set's. All is a pure function of (options, user): any thread may ask for any user in any order.
//
//   YambdaWorld world({.users = 1000});
//   YambdaHistory history;
//   world.generate(17, history);
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "turbogr/data/yambda/yambda_catalogue.h"

namespace turbogr::data {

enum class YambdaEvent : std::uint8_t { kListen, kLike, kDislike, kUnlike, kUndislike };

struct YambdaOptions {
  std::int64_t users = 1000;
  std::int64_t items = 0;       // 0: as the original has for so many users
  double mean_length = 0;       // scales every length; 0: the original's
  std::int64_t max_length = 0;  // cuts longer histories; 0: none
  double bayes_auc = 0.80;
  std::uint64_t seed = 0;
};

// One user's events in order; vectors keep their memory from user to user.
struct YambdaHistory {
  std::vector<std::uint32_t> items;  // of the catalogue, from 0
  std::vector<std::int64_t> times;   // seconds, multiples of 5, never down
  std::vector<YambdaEvent> types;
  std::vector<std::uint8_t> organic;      // 1: the user's own choice, 0: recommended
  std::vector<std::uint16_t> played_pct;  // of listens; else 0
  std::vector<float> chance;              // that a listen reaches half of the track; else 0

  void clear();
};

inline constexpr std::int64_t kYambdaSeconds = 26'000'000;  // the log's, about 301 days
inline constexpr std::uint16_t kYambdaListened = 50;        // per cent, from which a listen counts

class YambdaWorld {
 public:
  explicit YambdaWorld(const YambdaOptions& options);

  const YambdaCatalogue& catalogue() const { return catalogue_; }
  std::int64_t num_users() const { return static_cast<std::int64_t>(offsets_.size()) - 1; }
  std::int64_t num_events() const { return offsets_.back(); }
  std::int64_t offset(std::int64_t user) const { return offsets_[static_cast<std::size_t>(user)]; }

  void generate(std::int64_t user, YambdaHistory& history) const;

  // Of listens, told apart by their true chances; estimated on a sample of them.
  double bayes_auc() const { return bayes_auc_; }

 private:
  using Taste = std::array<float, YambdaCatalogue::kTastes>;
  struct Listen;
  Taste taste_of(std::int64_t user) const;
  std::uint32_t choose(class YambdaDraws& draws, const Taste& taste) const;
  double likes(const Taste& taste, std::uint32_t item, std::int64_t hour) const;
  double chance(double likes, bool organic) const;
  std::vector<Listen> sample_listens() const;
  void calibrate(double wanted);

  YambdaOptions options_;
  std::vector<std::int64_t> offsets_;
  YambdaCatalogue catalogue_;
  double spread_ = 1;                     // of the logit
  std::array<double, 2> intercept_ = {};  // recommended, own
  double bayes_auc_ = 0;
};

}  // namespace turbogr::data
