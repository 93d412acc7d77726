#include "turbogr/data/yambda/yambda_world.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "turbogr/core/check.h"
#include "turbogr/core/philox.h"
#include "turbogr/data/expected_auc.h"
#include "turbogr/data/synth_presets.h"
#include "turbogr/data/world_size.h"

namespace turbogr::data {

// A user's random numbers, in the order in which they are used.
class YambdaDraws : public PhiloxStream {
 public:
  YambdaDraws(std::uint64_t seed, std::uint64_t use, std::int64_t user)
      : PhiloxStream(seed ^ (use << 56), static_cast<std::uint64_t>(user)) {}
  bool happens(double chance) { return uniform() < chance; }
};

namespace {

constexpr std::uint64_t kTaste = 1, kEvents = 2, kSample = 3, kLength = 4;

// Share of users -> events of a user.
constexpr CurvePoint kLengths[] = {{0, 11},     {.25, 687},   {.5, 2654},
                                   {.75, 6857}, {.99, 21000}, {1, 27700}};
// Users -> tracks of the published sizes.
constexpr CurvePoint kItems[] = {{10'000, 934'057}, {100'000, 3'004'578}, {1'000'000, 9'390'623}};
// Share of users -> the day of their first event.
constexpr CurvePoint kFirstDay[] = {{0, 0},    {.275, 1}, {.344, 2},  {.378, 3},
                                    {.406, 4}, {.425, 5}, {.437, 6},  {.448, 7},
                                    {.460, 8}, {.470, 9}, {.476, 10}, {1, 300}};
constexpr double kSecondsADay = 86'400;
constexpr double kSessionEvents = 18.9;
constexpr double kSameTime = 0.12;  // neighbours that share a time

// Of 1,000 listens: so many other events. And the shares that were recommended.
constexpr double kRecommended = 0.483;
struct Rare {
  YambdaEvent type;
  double a_listen, recommended;
};
constexpr Rare kRare[] = {{YambdaEvent::kLike, 0.01897, 0.430},
                          {YambdaEvent::kDislike, 0.00232, 0.481},
                          {YambdaEvent::kUnlike, 0.00674, 0.053},
                          {YambdaEvent::kUndislike, 0.00045, 0.110}};
// Listens to half of a track: of recommended ones, of own choices.
constexpr std::array<double, 2> kListened = {0.681, 0.587};
constexpr double kNothingPlayed = 0.074;  // of all listens

// What a listener's liking is made of; variances add up to one before choosing.
constexpr double kTasteWeight = 0.8, kAppealWeight = 0.52, kHourWeight = 0.42;
constexpr int kCandidates = 8;        // tracks by popularity, of which taste takes one
constexpr double kTasteInChoice = 1;  // exp of so much of the taste

std::int64_t items_for(std::int64_t users) {
  const auto x = std::log(static_cast<double>(users));
  const CurvePoint* p = x < std::log(kItems[1].x) ? kItems : kItems + 1;
  const double slope = std::log(p[1].y / p[0].y) / std::log(p[1].x / p[0].x);
  return std::max<std::int64_t>(100,
                                std::llround(p[0].y * std::exp(slope * (x - std::log(p[0].x)))));
}

const YambdaOptions& checked(const YambdaOptions& options) {
  check_world_size({options.users, options.mean_length, options.max_length});
  TGR_CHECK(options.bayes_auc > 0.5 && options.bayes_auc < 0.99, "a Bayes AUC of ",
            options.bayes_auc, "; give one between 0.5 and 0.99");
  return options;
}

std::vector<std::int64_t> lengths_of(const YambdaOptions& options) {
  const double scale =
      options.mean_length == 0 ? 1.0 : options.mean_length / curve_log_mean(kLengths);
  std::vector<std::int64_t> offsets = {0};
  for (std::int64_t user = 0; user < options.users; ++user) {
    YambdaDraws draws(options.seed, kLength, user);
    // Stratified, so that a small world has the lengths of a large one.
    const double rank =
        (static_cast<double>(user) + draws.uniform()) / static_cast<double>(options.users);
    auto length = std::max<std::int64_t>(3, std::llround(scale * curve_log(kLengths, rank)));
    if (options.max_length != 0) length = std::min(length, options.max_length);
    offsets.push_back(length);
  }
  // Neighbouring users are not of one length.
  for (std::size_t i = offsets.size() - 1; i > 1; --i) {
    YambdaDraws draws(options.seed, kLength, -static_cast<std::int64_t>(i));
    std::swap(offsets[i], offsets[1 + draws.below(i)]);
  }
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  return offsets;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Where a function that rises with x reaches `wanted`.
template <class Function>
double solve(double low, double high, double wanted, const Function& function) {
  for (int i = 0; i < 24; ++i) {
    const double middle = (low + high) / 2;
    (function(middle) < wanted ? low : high) = middle;
  }
  return (low + high) / 2;
}

std::uint16_t played_pct(YambdaDraws& draws, bool listened) {
  const double u = draws.uniform();
  if (listened) {
    if (u < 0.75) return 100;
    if (u < 0.7575) return static_cast<std::uint16_t>(101 + draws.below(59));
    return static_cast<std::uint16_t>(kYambdaListened + draws.below(50));
  }
  const double mean_listened = kRecommended * kListened[0] + (1 - kRecommended) * kListened[1];
  if (u < kNothingPlayed / (1 - mean_listened)) return 0;
  return static_cast<std::uint16_t>(1 + draws.below(kYambdaListened - 1));
}

}  // namespace

void YambdaHistory::clear() {
  items.clear();
  times.clear();
  types.clear();
  organic.clear();
  played_pct.clear();
  chance.clear();
}

struct YambdaWorld::Listen {
  double likes = 0;
  bool organic = false;
};

YambdaWorld::YambdaWorld(const YambdaOptions& options)
    : options_(checked(options)),
      offsets_(lengths_of(options)),
      catalogue_(options.items == 0 ? items_for(options.users) : options.items, options.seed) {
  calibrate(options.bayes_auc);
}

YambdaWorld::Taste YambdaWorld::taste_of(std::int64_t user) const {
  YambdaDraws draws(options_.seed, kTaste, user);
  Taste taste;
  for (float& t : taste) t = static_cast<float>(0.5 * draws.normal());
  return taste;
}

std::uint32_t YambdaWorld::choose(YambdaDraws& draws, const Taste& taste) const {
  std::array<std::uint32_t, kCandidates> items;
  std::array<double, kCandidates> weights;
  double sum = 0;
  for (std::size_t i = 0; i < kCandidates; ++i) {
    items[i] = catalogue_.item_at(draws.uniform());
    const auto artist = catalogue_.taste(items[i]);
    const double fit = std::inner_product(taste.begin(), taste.end(), artist.begin(), 0.0);
    sum += weights[i] = std::exp(kTasteInChoice * fit);
  }
  double u = draws.uniform() * sum;
  std::size_t chosen = 0;
  while (chosen + 1 < kCandidates && u >= weights[chosen]) u -= weights[chosen++];
  return items[chosen];
}

double YambdaWorld::likes(const Taste& taste, std::uint32_t item, std::int64_t hour) const {
  const auto artist = catalogue_.taste(item);
  const double fit = std::inner_product(taste.begin(), taste.end(), artist.begin(), 0.0);
  const double evening = std::cos(2 * std::numbers::pi * static_cast<double>(hour - 20) / 24);
  return kTasteWeight * fit + kAppealWeight * catalogue_.appeal(item) + kHourWeight * evening;
}

double YambdaWorld::chance(double likes, bool organic) const {
  return sigmoid(spread_ * likes + intercept_[organic ? 1 : 0]);
}

std::vector<YambdaWorld::Listen> YambdaWorld::sample_listens() const {
  constexpr std::int64_t kUsers = 1000, kEach = 50;
  std::vector<Listen> listens;
  for (std::int64_t i = 0; i < kUsers; ++i) {
    // Users with long histories have more listens.
    YambdaDraws draws(options_.seed, kSample, i);
    const auto event =
        static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(num_events())));
    const auto user = std::ranges::upper_bound(offsets_, event) - offsets_.begin() - 1;
    const Taste taste = taste_of(user);
    for (std::int64_t j = 0; j < kEach; ++j) {
      const std::uint32_t item = choose(draws, taste);
      const auto hour = static_cast<std::int64_t>(draws.below(24));
      listens.push_back({likes(taste, item, hour), !draws.happens(kRecommended)});
    }
  }
  return listens;
}

// The intercepts that give the published shares for a spread, and the spread that gives the AUC.
void YambdaWorld::calibrate(double wanted) {
  const std::vector<Listen> listens = sample_listens();
  const auto mean_chance = [&](bool organic, double intercept) {
    double sum = 0, count = 0;
    for (const Listen& listen : listens) {
      if (listen.organic != organic) continue;
      sum += sigmoid(spread_ * listen.likes + intercept);
      ++count;
    }
    return count == 0 ? 0.5 : sum / count;
  };
  const auto auc_at = [&](double spread) {
    spread_ = spread;
    for (const bool organic : {false, true}) {
      intercept_[organic ? 1 : 0] = solve(-30, 30, kListened[organic ? 1 : 0],
                                          [&](double x) { return mean_chance(organic, x); });
    }
    std::vector<double> chances;
    chances.reserve(listens.size());
    for (const Listen& listen : listens) chances.push_back(chance(listen.likes, listen.organic));
    return expected_auc(std::move(chances));
  };
  bayes_auc_ = auc_at(solve(0, 20, wanted, auc_at));
}

void YambdaWorld::generate(std::int64_t user, YambdaHistory& history) const {
  const auto at = static_cast<std::size_t>(user);
  const std::int64_t length = offsets_[at + 1] - offsets_[at];
  history.clear();
  YambdaDraws draws(options_.seed, kEvents, user);
  const Taste taste = taste_of(user);

  // Sessions begin anywhere between the first day and the last.
  const double first = curve_linear(kFirstDay, draws.uniform()) * kSecondsADay;
  const auto sessions =
      std::max<std::int64_t>(1, std::llround(static_cast<double>(length) / kSessionEvents));
  std::vector<double> begins;
  for (std::int64_t i = 0; i < sessions; ++i) {
    begins.push_back(first + draws.uniform() * (static_cast<double>(kYambdaSeconds) - first));
  }
  std::ranges::sort(begins);

  double time = 0;
  std::size_t session = 0;
  const auto add = [&](std::uint32_t item, YambdaEvent type, bool organic, std::uint16_t played,
                       double chance) {
    const auto stamp = static_cast<std::int64_t>(time) / 5 * 5;
    history.items.push_back(item);
    history.times.push_back(std::min(stamp, kYambdaSeconds));
    history.types.push_back(type);
    history.organic.push_back(organic ? 1 : 0);
    history.played_pct.push_back(played);
    history.chance.push_back(static_cast<float>(chance));
  };
  while (std::ssize(history.items) < length) {
    // The next session begins when as many events are done as it begins at.
    const auto due =
        static_cast<std::size_t>(static_cast<double>(history.items.size()) /
                                 static_cast<double>(length) * static_cast<double>(sessions));
    if (history.items.empty() || due > session) {
      session = due;
      time = std::max(time + 1800, begins[std::min(session, begins.size() - 1)]);
    }
    const std::uint32_t item = choose(draws, taste);
    const bool organic = !draws.happens(kRecommended);
    const auto hour = static_cast<std::int64_t>(time) / 3600 % 24;
    const double p = chance(likes(taste, item, hour), organic);
    const bool listened = draws.happens(p);
    const std::uint16_t played = played_pct(draws, listened);
    add(item, YambdaEvent::kListen, organic, played, p);
    for (const Rare& rare : kRare) {
      if (!draws.happens(rare.a_listen) || std::ssize(history.items) >= length) continue;
      add(item, rare.type, !draws.happens(rare.recommended), 0, 0);
    }
    if (!draws.happens(kSameTime)) {
      time += std::max(5.0, static_cast<double>(catalogue_.seconds(item)) * played / 100.0);
    }
  }
}

}  // namespace turbogr::data
