#include "turbogr/data/synth_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <unordered_map>
#include <vector>

#include "tests/support/messages.h"

namespace turbogr::data {
namespace {

using test::message_of;

double quantile(std::vector<std::int64_t>& values, double at) {
  std::sort(values.begin(), values.end());
  return static_cast<double>(
      values[static_cast<std::size_t>(at * static_cast<double>(values.size() - 1))]);
}

TEST(SynthWorld, LengthsHaveTheOriginalsQuantiles) {
  const SynthWorld world({.users = 4000});
  std::vector<std::int64_t> lengths;
  for (std::int64_t user = 0; user < world.num_users(); ++user) {
    lengths.push_back(world.length(user));
  }
  EXPECT_NEAR(static_cast<double>(world.num_events()) / 4000.0, 11812, 120);
  EXPECT_NEAR(quantile(lengths, .10), 2188, 20);
  EXPECT_NEAR(quantile(lengths, .25), 4476, 40);
  EXPECT_NEAR(quantile(lengths, .50), 8594, 80);
  EXPECT_NEAR(quantile(lengths, .75), 15227, 150);
  EXPECT_NEAR(quantile(lengths, .90), 24587, 250);
  EXPECT_NEAR(quantile(lengths, .99), 56230, 1200);
  EXPECT_GE(lengths.front(), 100);
  EXPECT_LE(lengths.back(), 228000);
  const auto at_least = [&](std::int64_t bound) {
    return static_cast<double>(lengths.end() -
                               std::lower_bound(lengths.begin(), lengths.end(), bound)) /
           4000.0;
  };
  EXPECT_NEAR(at_least(2048), .909, .005);
  EXPECT_NEAR(at_least(4096), .775, .005);
}

// One pass over a world for all the figures that need every event.
struct Census {
  explicit Census(const SynthWorld& world)
      : counts(static_cast<std::size_t>(world.catalogue().num_items())), hours(24) {
    SynthHistory history;
    for (std::int64_t user = 0; user < world.num_users(); ++user) {
      world.generate(user, history);
      EXPECT_EQ(static_cast<std::int64_t>(history.items.size()), world.length(user));
      EXPECT_GE(history.times.front(), world.preset().begin_ms);
      EXPECT_LT(history.times.back(), world.preset().begin_ms + world.preset().days * 86400000);
      for (std::size_t i = 0; i < history.items.size(); ++i) {
        ++counts.at(history.items[i]);
        clicks += history.signals[i] & kSynthClick;
        ++hours[static_cast<std::size_t>((history.times[i] + world.preset().utc_offset_ms) /
                                         3600000 % 24)];
        if (i > 0) gaps.push_back(history.times[i] - history.times[i - 1]);
      }
    }
    events = world.num_events();
    std::sort(counts.begin(), counts.end(), std::greater<>());
    while (!counts.empty() && counts.back() == 0) counts.pop_back();
    std::sort(gaps.begin(), gaps.end());
  }
  double top(double share) const {
    const auto items = static_cast<std::ptrdiff_t>(share * static_cast<double>(counts.size()));
    return static_cast<double>(
               std::accumulate(counts.begin(), counts.begin() + items, std::int64_t{0})) /
           static_cast<double>(events);
  }
  double gaps_below(std::int64_t bound) const {
    return static_cast<double>(std::lower_bound(gaps.begin(), gaps.end(), bound) - gaps.begin()) /
           static_cast<double>(gaps.size());
  }

  std::vector<std::int64_t> counts;  // of items that appear, most popular first
  std::vector<std::int64_t> gaps;    // rising
  std::vector<std::int64_t> hours;
  std::int64_t clicks = 0;
  std::int64_t events = 0;
};

TEST(SynthWorld, PopularityGapsAndClicksFollowTheOriginal) {
  const Census census(SynthWorld({.users = 200}));
  const auto items = static_cast<double>(census.counts.size());
  const auto events = static_cast<double>(census.events);
  const auto once = std::count(census.counts.begin(), census.counts.end(), 1);
  EXPECT_NEAR(static_cast<double>(once) / items, .54, .03);
  EXPECT_NEAR(census.top(.01), .441, .03);
  EXPECT_NEAR(census.top(.10), .80, .03);
  EXPECT_NEAR(events / items, 10.06, 1);
  EXPECT_LT(static_cast<double>(census.counts.front()) / events, .004);

  EXPECT_NEAR(static_cast<double>(census.clicks) / events, .379, .015);

  EXPECT_EQ(census.gaps.front(), 0);
  EXPECT_NEAR(census.gaps_below(1), .8055, .01);  // rows of one request share a millisecond
  EXPECT_NEAR(census.gaps_below(1000), .828, .01);
  EXPECT_NEAR(census.gaps_below(10000), .844, .01);
  EXPECT_NEAR(census.gaps_below(60000), .899, .01);
  EXPECT_NEAR(census.gaps_below(300000), .964, .006);
  EXPECT_NEAR(census.gaps_below(1800000), .9874, .003);
  EXPECT_NEAR(census.gaps_below(7200000), .9942, .002);
  const double mean = std::accumulate(census.gaps.begin(), census.gaps.end(), 0.0) /
                      static_cast<double>(census.gaps.size()) / 1000;
  EXPECT_NEAR(mean, 217.8, 10);

  // Busy evenings, quiet nights: the original's ratio is eight.
  EXPECT_GT(census.hours[21], 2 * census.hours[4]);
  EXPECT_GT(census.hours[21], census.hours[9]);
}

TEST(SynthWorld, ScalesLengthsAndKeepsThePopularItemsWhenAskedForFewer) {
  const SynthWorld world({.users = 500, .items = 2000, .mean_length = 80, .max_length = 300});
  EXPECT_NEAR(static_cast<double>(world.num_events()) / 500.0, 75, 10);
  EXPECT_EQ(world.catalogue().num_items(), 2000);
  EXPECT_EQ(world.catalogue().num_single(), 0);
  const Census census(world);
  EXPECT_GT(census.counts.size(), 1700u);
  for (std::int64_t user = 0; user < 500; ++user) EXPECT_LE(world.length(user), 300);
  const SynthWorld films({.like = "movielens", .users = 300});
  EXPECT_EQ(films.catalogue().num_items(), 3706);
  EXPECT_NEAR(static_cast<double>(films.num_events()) / 300.0, 166, 10);
}

TEST(SynthWorld, AUserIsTheSameWheneverAsked) {
  const SynthWorld world({.users = 50, .mean_length = 200, .seed = 3});
  SynthHistory first;
  SynthHistory other;
  SynthHistory again;
  world.generate(7, first);
  world.generate(8, other);
  world.generate(7, again);
  EXPECT_EQ(first.items, again.items);
  EXPECT_EQ(first.times, again.times);
  EXPECT_EQ(first.signals, again.signals);
  EXPECT_NE(first.items, other.items);
  const SynthWorld reseeded({.users = 50, .mean_length = 200, .seed = 4});
  reseeded.generate(7, again);
  EXPECT_NE(first.items, again.items);
}

TEST(SynthWorld, RepeatsAsOftenAsAsked) {
  const auto share = [](double repeats) {
    const SynthWorld world({.users = 60, .mean_length = 600, .repeats = repeats, .seed = 3});
    double repeated = 0, all = 0;
    SynthHistory history;
    for (std::int64_t user = 0; user < 60; ++user) {
      world.generate(user, history);
      for (std::size_t i = 64; i < history.items.size(); ++i, ++all) {
        const auto now = history.items.begin() + static_cast<std::ptrdiff_t>(i);
        repeated += std::find(now - 64, now, *now) != now ? 1 : 0;
      }
    }
    return repeated / all;
  };
  const double usual = share(kSynthRepeats);  // mostly by chance, in a world this small
  EXPECT_LT(usual, .5);
  EXPECT_GT(share(.7), .7);
  EXPECT_LT(share(.7), .8);
  EXPECT_LT(share(0), usual);
}

TEST(SynthWorld, RefusesWhatItCannotMake) {
  EXPECT_EQ(message_of([] { SynthWorld({.like = "netflix"}); }),
            "synth: no preset 'netflix'; use kuairand27k, movielens or yambda");
  EXPECT_EQ(message_of([] { SynthWorld({.users = 0}); }),
            "a world of 0 users; from 1 to 2147483647 are possible");
  EXPECT_EQ(message_of([] { SynthWorld({.users = 5, .items = 3}); }),
            "synth: 3 items; a world needs at least 64");
  EXPECT_NE(message_of([] {
              SynthWorld({.users = 5, .items = std::int64_t{1} << 33});
            }).find("do not fit ids of 32 bits"),
            std::string::npos);
  EXPECT_NE(
      message_of([] { SynthWorld({.users = 5, .mean_length = -1}); }).find("events on average"),
      std::string::npos);
  EXPECT_NE(message_of([] {
              SynthWorld({.users = 5, .max_length = 2});
            }).find("histories of at most 2 events"),
            std::string::npos);
  EXPECT_NE(message_of([] { SynthWorld({.users = 5, .repeats = 1}); }).find("use 0 to 0.9"),
            std::string::npos);
  SynthHistory history;
  EXPECT_EQ(message_of([&] { SynthWorld({.users = 5}).generate(5, history); }),
            "synth: user 5 of a world of 5");
}

TEST(SynthCatalogue, LinksPermuteALevelAndIdsAreOneToOne) {
  const SynthCatalogue catalogue(synth_preset("kuairand27k"), 100000, 1003, 9);
  ASSERT_EQ(catalogue.num_items(), 1003);
  std::set<std::uint32_t> ids;
  std::set<std::uint32_t> clusters;
  for (std::uint32_t i = 0; i < 200000; ++i) {
    const std::uint32_t bits = i * 2654435761u;
    const std::uint32_t cluster = catalogue.draw_cluster(bits);
    ASSERT_LT(cluster, catalogue.num_clusters());
    clusters.insert(cluster);
    const SynthCatalogue::Place place = catalogue.draw(cluster, bits * 2246822519u);
    ids.insert(catalogue.id(place));
    for (int link = 0; link < SynthCatalogue::kLinks; ++link) {
      const SynthCatalogue::Place next = catalogue.follow(place, link);
      EXPECT_EQ(next.cluster, place.cluster);
      EXPECT_EQ(next.level, place.level);
      EXPECT_NE(next.index, place.index);
      ids.insert(catalogue.id(next));
    }
  }
  EXPECT_EQ(static_cast<std::int64_t>(clusters.size()), catalogue.num_clusters());
  EXPECT_EQ(ids.size(), 1003u);  // every item can be met, and no id is outside
  EXPECT_EQ(*ids.rbegin(), 1002u);
}

// Three predictors of every user's last event, trained on all the others.
struct HitRates {
  double popularity = 0;
  double last_item = 0;  // most frequent successors of the last item
  double few_items = 0;  // votes of the last seven
};

HitRates hit_rates(const SynthWorld& world) {
  constexpr std::size_t kTop = 10;
  std::unordered_map<std::uint32_t, int> counts;
  std::unordered_map<std::uint64_t, int> pairs;
  std::vector<std::vector<std::uint32_t>> tails;
  SynthHistory history;
  for (std::int64_t user = 0; user < world.num_users(); ++user) {
    world.generate(user, history);
    const std::size_t size = history.items.size();
    for (std::size_t i = 0; i + 1 < size; ++i) {
      ++counts[history.items[i]];
      if (i > 0) ++pairs[(std::uint64_t{history.items[i - 1]} << 32) | history.items[i]];
    }
    tails.emplace_back(
        history.items.end() - static_cast<std::ptrdiff_t>(std::min<std::size_t>(size, 8)),
        history.items.end());
  }
  using Ranked = std::vector<std::pair<int, std::uint32_t>>;
  std::unordered_map<std::uint32_t, Ranked> successors;
  for (const auto& [pair, count] : pairs) {
    successors[static_cast<std::uint32_t>(pair >> 32)].emplace_back(
        count, static_cast<std::uint32_t>(pair));
  }
  for (auto& [item, ranked] : successors) std::sort(ranked.rbegin(), ranked.rend());
  Ranked popular;
  for (const auto& [item, count] : counts) popular.emplace_back(count, item);
  std::sort(popular.rbegin(), popular.rend());

  const auto among = [](const Ranked& ranked, std::size_t top, std::uint32_t item) {
    const auto end = ranked.begin() + static_cast<std::ptrdiff_t>(std::min(top, ranked.size()));
    return std::any_of(ranked.begin(), end, [&](const auto& pair) { return pair.second == item; });
  };
  HitRates rates;
  for (const auto& tail : tails) {
    const std::uint32_t target = tail.back();
    const std::size_t last = tail.size() - 2;
    rates.popularity += among(popular, kTop, target) ? 1 : 0;
    rates.last_item += among(successors[tail[last]], kTop, target) ? 1 : 0;
    std::unordered_map<std::uint32_t, double> votes;
    for (std::size_t back = 0; back <= last; ++back) {
      const std::uint32_t item = tail[last - back];
      for (const auto& [count, next] : successors[item]) {
        votes[next] += count / (static_cast<double>(counts[item]) * (back == 0 ? 1.0 : 3.0));
      }
    }
    const double own = votes[target];
    const auto better = std::count_if(votes.begin(), votes.end(),
                                      [&](const auto& vote) { return vote.second > own; });
    rates.few_items += own > 0 && better < static_cast<std::ptrdiff_t>(kTop) ? 1 : 0;
  }
  const auto users = static_cast<double>(tails.size());
  return {rates.popularity / users, rates.last_item / users, rates.few_items / users};
}

TEST(SynthWorld, HistoryPredictsTheNextItemFarBetterThanPopularity) {
  const HitRates small = hit_rates(SynthWorld({.users = 2000, .items = 5000, .mean_length = 60}));
  EXPECT_GT(small.last_item, 5 * small.popularity);
  EXPECT_GT(small.last_item, .3);
  EXPECT_GT(small.few_items, small.last_item + .01);  // who looks further back sees more
  const HitRates large = hit_rates(SynthWorld({.users = 600, .mean_length = 300}));
  EXPECT_GT(large.last_item, 5 * large.popularity);
  const HitRates films = hit_rates(SynthWorld({.like = "movielens", .users = 400}));
  EXPECT_GT(films.last_item, 5 * films.popularity);
}

}  // namespace
}  // namespace turbogr::data
