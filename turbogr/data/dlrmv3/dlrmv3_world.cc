#include "turbogr/data/dlrmv3/dlrmv3_world.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/philox.h"
#include "turbogr/data/expected_auc.h"
#include "turbogr/data/world_size.h"

namespace turbogr::data {
namespace {

constexpr std::size_t kOwn = 4;  // categories of a user
constexpr double kActive = 0.7;
constexpr double kRatings[] = {.2, .25, .25, .2, .1};  // of 5, 4, 3, 2, 1
constexpr std::int64_t kLeastItems = Dlrmv3World::kCategories * Dlrmv3World::kSteps;
// Apart from each other: what the seed is used for.
constexpr std::uint64_t kLengthUse = 1, kEventUse = 2, kItemUse = 3;

PhiloxStream dlrmv3_stream(std::uint64_t seed, std::uint64_t use, std::uint64_t which) {
  return PhiloxStream(seed ^ (use << 56), which);
}

// What a user gives a category, of which one is drawn for every event.
struct Opinion {
  double rating, share;
};

std::array<Opinion, 3> opinions(std::size_t place, std::int32_t step) {
  const auto c = [step](int k) { return std::cos(std::numbers::pi * (step + k) / 4) / 2; };
  if (place == 0) return {{{4.5 + c(0), .8}, {4 + c(2), .2}, {0, 0}}};
  const double b = 5 - static_cast<double>(place);
  return {{{b + .5 + c(0), .1}, {b + c(2), .8}, {b - .5 + c(4), .1}}};
}

double event_rating(double category, int item) { return (category + item) / 2; }

bool is_liked(double rating) { return rating >= Dlrmv3World::kLiked - 1e-9; }

double chance_of(const std::array<Opinion, 3>& opinions, int item) {
  double chance = 0;
  for (const Opinion& opinion : opinions) {
    if (is_liked(event_rating(opinion.rating, item))) chance += opinion.share;
  }
  return chance;
}

double draw_opinion(const std::array<Opinion, 3>& opinions, double u) {
  std::size_t i = 0;
  while (i + 1 < opinions.size() && u >= opinions[i].share && opinions[i + 1].share > 0) {
    u -= opinions[i++].share;
  }
  return opinions[i].rating;
}

std::array<std::int64_t, kOwn> draw_categories(PhiloxStream& random) {
  std::array<std::int64_t, kOwn> own;
  for (std::size_t g = 0; g < kOwn; ++g) {
    do {
      own[g] = static_cast<std::int64_t>(random.below(Dlrmv3World::kCategories));
    } while (std::find(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(g), own[g]) !=
             own.begin() + static_cast<std::ptrdiff_t>(g));
  }
  return own;
}

}  // namespace

// Events that join the history, a step; 0: the user is not there.
struct Dlrmv3World::Lengths {
  std::array<std::int64_t, kSteps + 1> joining;  // the base first

  static bool judged(std::size_t block) { return block > kFirstJudged; }
  std::int64_t events(std::size_t block) const {
    return joining[block] > 0 && judged(block) ? kCandidates : joining[block];
  }
};

void Dlrmv3History::clear() {
  items.clear();
  steps.clear();
  ratings.clear();
  chances.clear();
  joins.clear();
}

Dlrmv3World::Dlrmv3World(const Dlrmv3Options& options) : seed_(options.seed) {
  check_world_size({.users = options.users});
  const std::int64_t items =
      options.items == 0 ? std::max(kLeastItems, 200 * options.users) : options.items;
  TGR_CHECK(items >= kLeastItems && items < (std::int64_t{1} << 32), "a catalogue of ", items,
            " items; 128 categories that grow in 100 steps want ", kLeastItems, " to 2^32 - 1");
  items_of_category_ = items / kCategories;
  offsets_ = {0};
  for (std::int64_t user = 0; user < options.users; ++user) {
    const Lengths lengths = lengths_of(user);
    std::int64_t events = 0;
    for (std::size_t block = 0; block < lengths.joining.size(); ++block) {
      events += lengths.events(block);
    }
    offsets_.push_back(offsets_.back() + events);
  }
}

Dlrmv3World::Lengths Dlrmv3World::lengths_of(std::int64_t user) const {
  PhiloxStream random = dlrmv3_stream(seed_, kLengthUse, static_cast<std::uint64_t>(user));
  Lengths lengths;
  for (std::size_t block = 0; block < lengths.joining.size(); ++block) {
    const bool active = block == 0 || random.uniform() < kActive;
    const auto length = std::max<std::int64_t>(33, std::llround(100 + 25 * random.normal()));
    lengths.joining[block] = active ? length : 0;
  }
  return lengths;
}

int Dlrmv3World::item_rating(std::uint32_t item) const {
  double u = dlrmv3_stream(seed_, kItemUse, item).uniform();
  int rating = 5;
  while (rating > 1 && u >= kRatings[5 - rating]) u -= kRatings[5 - rating--];
  return rating;
}

void Dlrmv3World::generate(std::int64_t user, Dlrmv3History& history) const {
  history.clear();
  PhiloxStream random = dlrmv3_stream(seed_, kEventUse, static_cast<std::uint64_t>(user));
  const Lengths lengths = lengths_of(user);
  const std::array<std::int64_t, kOwn> own = draw_categories(random);
  std::array<double, kOwn> counts = {};  // of what has joined
  std::vector<std::size_t> order;
  for (std::size_t block = 0; block < lengths.joining.size(); ++block) {
    const std::int64_t events = lengths.events(block);
    if (events == 0) continue;
    const std::int32_t step = static_cast<std::int32_t>(block) + kBase;
    const double a = 1 + static_cast<double>(random.below(500));
    const double sum = a + std::accumulate(counts.begin(), counts.end(), 0.0);
    const std::array<double, kOwn> before = counts;
    const auto offered = static_cast<std::uint64_t>(items_of_category_ * std::max(step + 1, 1) /
                                                    kSteps);  // the catalogue grows
    // The first of a random order join.
    order.resize(static_cast<std::size_t>(events));
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (Lengths::judged(block)) {
      for (std::size_t i = order.size() - 1; i > 0; --i) {
        std::swap(order[i], order[random.below(i + 1)]);
      }
    }
    for (const std::size_t place : order) {
      std::size_t g = 0;
      for (double u = random.uniform() * sum; g + 1 < kOwn && u >= a / 4 + before[g]; ++g) {
        u -= a / 4 + before[g];
      }
      const auto item = static_cast<std::uint32_t>(
          own[g] * items_of_category_ + static_cast<std::int64_t>(random.below(offered)));
      const std::array<Opinion, 3> possible = opinions(g, step);
      const int rating = item_rating(item);
      const bool joins = static_cast<std::int64_t>(place) < lengths.joining[block];
      counts[g] += joins ? 1 : 0;
      history.items.push_back(item);
      history.steps.push_back(step);
      history.ratings.push_back(
          static_cast<float>(event_rating(draw_opinion(possible, random.uniform()), rating)));
      history.chances.push_back(static_cast<float>(chance_of(possible, rating)));
      history.joins.push_back(joins ? 1 : 0);
    }
  }
}

Dlrmv3World::BayesAuc Dlrmv3World::bayes_auc() const {
  constexpr std::int64_t kMostUsers = 200;
  const std::int64_t users = std::min(num_users(), kMostUsers);
  Dlrmv3History history;
  std::vector<double> all, request;
  double sum = 0, requests = 0;
  for (std::int64_t i = 0; i < users; ++i) {
    generate(i * num_users() / users, history);
    for (std::size_t e = 0; e < history.items.size(); ++e) {
      if (history.steps[e] < kFirstJudged) continue;
      request.push_back(history.chances[e]);
      if (e + 1 < history.items.size() && history.steps[e + 1] == history.steps[e]) continue;
      all.insert(all.end(), request.begin(), request.end());
      const double auc = expected_auc(std::move(request));
      request.clear();
      if (std::isnan(auc)) continue;
      sum += auc;
      ++requests;
    }
  }
  return {expected_auc(std::move(all)), sum / requests};
}

}  // namespace turbogr::data
