#include "turbogr/train/negative_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/simd_levels.h"
#include "turbogr/ops/rows/alias_table.h"
#include "turbogr/ops/rows/draw_negatives.h"
#include "turbogr/train/token_order.h"

namespace turbogr::train {
namespace {

using test::message_of;
using Ids = std::vector<std::int64_t>;

View<const std::int64_t, 1> view(const Ids& ids) {
  return {ids.data(), {static_cast<std::int64_t>(ids.size())}};
}

std::vector<std::uint64_t> keys_of(std::size_t tokens) {
  std::vector<std::uint64_t> keys(tokens);
  for (std::size_t i = 0; i < tokens; ++i) keys[i] = i << 24;
  return keys;
}

Ids draw_own(const train::NegativeSampler& sampler, const std::vector<std::uint64_t>& keys,
             int threads = 2) {
  const Context ctx({.threads = threads});
  const auto tokens = static_cast<std::int64_t>(keys.size());
  const std::int64_t count = sampler.options().count;
  Ids ids(static_cast<std::size_t>(tokens * count), -1);
  sampler.draw_own(ctx, {keys.data(), {tokens}}, {ids.data(), {tokens, count}});
  return ids;
}

// Pearson's statistic of draws against probabilities; for k - 1 degrees of freedom it is within
// mean k - 1 plus five deviations but for one seed in millions.
void expect_distribution(const Ids& draws, const std::vector<double>& probability) {
  std::vector<double> seen(probability.size());
  for (const std::int64_t id : draws) seen.at(static_cast<std::size_t>(id)) += 1;
  double statistic = 0;
  double degrees = -1;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const double expected = probability[i] * static_cast<double>(draws.size());
    if (expected == 0) {
      EXPECT_EQ(seen[i], 0) << "item " << i << " has no chance";
      continue;
    }
    ASSERT_GT(expected, 5) << "too few draws for item " << i;
    statistic += (seen[i] - expected) * (seen[i] - expected) / expected;
    ++degrees;
  }
  EXPECT_LT(statistic, degrees + 5 * std::sqrt(2 * degrees));
  EXPECT_GT(statistic, degrees - 5 * std::sqrt(2 * degrees));  // too even is wrong as well
}

std::vector<double> normalised(std::vector<double> weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= total;
  return weights;
}

TEST(AliasTable, HoldsTheDistributionToTheLastUnit) {
  for (const std::vector<double>& weights :
       {std::vector<double>{1}, {1, 1, 1}, {0, 3, 0, 1, 0.1, 7, 0}, {1e-12, 1, 1e12}}) {
    const auto slots = ops::make_alias_table(weights);
    std::vector<double> implied(weights.size());
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const double keep = slots[i].other == static_cast<std::int32_t>(i)
                              ? 1.0
                              : static_cast<double>(slots[i].keep) * 0x1p-32;
      implied[i] += keep;
      implied[static_cast<std::size_t>(slots[i].other)] += 1 - keep;
    }
    const auto wanted = normalised(weights);
    const auto items = static_cast<double>(weights.size());
    for (std::size_t i = 0; i < slots.size(); ++i) {
      EXPECT_NEAR(implied[i] / items, wanted[i], 0x1p-32) << i;
      if (weights[i] == 0) {
        EXPECT_EQ(implied[i], 0);
      }
    }
  }
}

TEST(AliasTable, NeverGivesAnItemOfWeightZeroHoweverRoundingFalls) {
  PhiloxStream random(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<double> weights(500);
    for (double& weight : weights) {
      weight = random.below(2) == 0 ? 0 : std::exp(20 * random.uniform());
    }
    weights[7] = 1;
    const auto slots = ops::make_alias_table(weights);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      EXPECT_GT(weights[static_cast<std::size_t>(slots[i].other)], 0);
      if (weights[i] == 0) {
        EXPECT_EQ(slots[i].keep, 0u);
      }
    }
  }
}

TEST(AliasTable, SaysWhatIsWrong) {
  EXPECT_EQ(message_of([] {
              ops::make_alias_table(std::vector<double>{0, 0});
            }),
            "the weights of 2 items sum to 0; an alias table needs one above 0");
  EXPECT_EQ(message_of([] {
              ops::make_alias_table(std::vector<double>{1, -1});
            }),
            "weight -1 of item 1; an alias table takes finite weights of 0 and more");
}

TEST(NegativeSampler, DrawsUniformly) {
  train::NegativeSampler sampler({.count = 7}, 50);
  sampler.begin_step({.seed = 5, .step = 3});
  expect_distribution(draw_own(sampler, keys_of(4000)), std::vector<double>(50, 1.0 / 50));
  EXPECT_FALSE(sampler.corrects());
}

// Drawn many at a time, and across pieces of the work: the ids of the definition.
TEST(DrawNegatives, UniformDrawsAreThoseOfTheDefinitionAtEveryInstructionSet) {
  const ops::NegativeKey key = {.seed = 0x123456789abcdefull, .step = 70000};
  for (const std::int64_t catalogue : {1ll, 3706ll, (1ll << 32) - 1, 1ll << 33}) {
    for (const std::int64_t count : {2, 5, 34, 20000}) {
      const std::vector<std::uint64_t> keys = {7, 1ull << 40, 0xffffffffffffffffull};
      const ops::NegativeSource source = {.catalogue = catalogue, .uniform = count};
      Ids wanted;
      for (const std::uint64_t row_key : keys) {
        for (std::int64_t r = 0; r < count; ++r) {
          const ops::NegativeBits pair = ops::negative_bits(key, row_key, r / 2);
          wanted.push_back(ops::draw_negative(source, r, pair.bits[r % 2]));
        }
      }
      for (const SimdLevel simd : test::simd_levels()) {
        const Context ctx({.threads = 2, .simd = simd});
        Ids ids(wanted.size(), -1);
        ops::draw_negatives(ctx, source, key, {keys.data(), {3}}, {ids.data(), {3, count}});
        EXPECT_EQ(ids, wanted) << catalogue << " items, " << count << " draws, " << name_of(simd);
      }
    }
  }
}

TEST(NegativeSampler, KnowsHowManyDrawsLeaveNoCandidateOut) {
  const Ids counts = {3, 0, 1, 0, 9, 2, 2, 0, 1, 5};
  for (const bool trained_only : {false, true}) {
    train::NegativeSampler sampler({.count = 8, .trained_only = trained_only}, 10, counts);
    const std::int64_t candidates = trained_only ? 7 : 10;
    ASSERT_EQ(sampler.num_candidates(), candidates);
    const std::int64_t enough = 64 * candidates;
    EXPECT_FALSE(sampler.draws_all(enough - 1));
    EXPECT_TRUE(sampler.draws_all(enough));
    Ids all;
    for (std::int64_t c = 0; c < candidates; ++c) all.push_back(sampler.candidate(c));
    for (std::uint64_t step = 0; step < 20; ++step) {
      sampler.begin_step({.seed = 8, .step = step});
      Ids ids = draw_own(sampler, keys_of(static_cast<std::size_t>(enough / 8)));
      EXPECT_EQ(std::set<std::int64_t>(ids.begin(), ids.end()),
                std::set<std::int64_t>(all.begin(), all.end()));
    }
  }
  using Kind = train::NegativeKind;
  for (const train::NegativeOptions& others :
       {train::NegativeOptions{.count = 8, .shared = true},
        train::NegativeOptions{.kind = Kind::kPopularity, .count = 8},
        train::NegativeOptions{.kind = Kind::kInBatch, .count = 8},
        train::NegativeOptions{.kind = Kind::kMixed, .count = 8, .mix = {2, 1, 1}}}) {
    EXPECT_FALSE(train::NegativeSampler(others, 10, counts).draws_all(1 << 20));
  }
}

TEST(NegativeSampler, DrawsByPopularityToThePowerOfAlpha) {
  const Ids counts = {0, 1, 4, 9, 100, 0, 2500, 16, 16};
  for (const double alpha : {0.5, 0.75, 1.0}) {
    train::NegativeSampler sampler(
        {.kind = train::NegativeKind::kPopularity, .count = 25, .alpha = alpha}, 9, counts);
    sampler.begin_step({.seed = 6, .step = 1});
    std::vector<double> weights;
    for (const std::int64_t count : counts) {
      weights.push_back(count == 0 ? 0 : std::pow(static_cast<double>(count), alpha));
    }
    expect_distribution(draw_own(sampler, keys_of(8000)), normalised(weights));
    // The correction is log(V q), to the precision of a double.
    const std::vector<double> q = normalised(weights);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      EXPECT_DOUBLE_EQ(sampler.correction(static_cast<std::int64_t>(i)),
                       q[i] == 0 ? 0 : std::log(9 * q[i]));
    }
  }
}

TEST(NegativeSampler, AlphaZeroIsUniformToTheBit) {
  const Ids counts = {5, 0, 17, 1, 900};
  train::NegativeSampler popular({.kind = train::NegativeKind::kPopularity, .count = 9, .alpha = 0},
                                 5, counts);
  train::NegativeSampler uniform({.count = 9}, 5);
  popular.begin_step({.seed = 1, .step = 2});
  uniform.begin_step({.seed = 1, .step = 2});
  EXPECT_EQ(draw_own(popular, keys_of(300)), draw_own(uniform, keys_of(300)));
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_NEAR(popular.correction(i), 0, 1e-15);
}

TEST(NegativeSampler, DrawsInBatchFromTheDistinctPositives) {
  const Ids counts(20, 3);
  train::NegativeSampler sampler({.kind = train::NegativeKind::kInBatch, .count = 30}, 20, counts);
  EXPECT_TRUE(sampler.needs_positives());
  sampler.begin_step({.seed = 2, .step = 9});
  sampler.add_positives(view({4, 4, 4, 4, 11}));
  sampler.add_positives(view({0, 11, 19}));
  sampler.finish_positives();
  std::vector<double> even(20);
  for (const std::size_t id : {0u, 4u, 11u, 19u}) even[id] = 0.25;
  expect_distribution(draw_own(sampler, keys_of(200)), even);
  // The next step forgets them.
  sampler.begin_step({.seed = 2, .step = 10});
  sampler.add_positives(view({7}));
  sampler.finish_positives();
  EXPECT_EQ(draw_own(sampler, keys_of(2)), Ids(60, 7));
}

TEST(NegativeSampler, CorrectsInBatchByTheChanceOfBeingThere) {
  const Ids counts = {0, 1, 9, 90, 900};
  train::NegativeSampler sampler({.kind = train::NegativeKind::kInBatch, .count = 4}, 5, counts);
  const Ids targets = {1, 4, 4, 3, 4, 4, 2};
  sampler.begin_step({});
  sampler.add_positives(view(targets));
  sampler.finish_positives();
  std::vector<double> inclusion;
  for (const std::int64_t count : counts) {
    inclusion.push_back(1 - std::pow(1 - static_cast<double>(count) / 1000, 7));
  }
  const std::vector<double> q = normalised(inclusion);
  for (std::int64_t i = 1; i < 5; ++i) {
    EXPECT_NEAR(sampler.correction(i), std::log(5 * q[static_cast<std::size_t>(i)]), 1e-13) << i;
  }
  // Items alike in popularity are alike everywhere: nothing to correct.
  train::NegativeSampler even({.kind = train::NegativeKind::kInBatch, .count = 4}, 5, Ids(5, 8));
  even.begin_step({});
  even.add_positives(view(targets));
  even.finish_positives();
  EXPECT_NEAR(even.correction(3), 0, 1e-14);
}

// The corrections must be right for what is drawn, not only for a formula: over many batches whose
// positives follow the counts, an item is in the set of all of them as often as q says.
TEST(NegativeSampler, IsInTheBatchAsOftenAsItsCorrectionSays) {
  const Context ctx({.threads = 1});
  const Ids counts = {1, 2, 4, 8, 16, 32, 64, 128};
  train::NegativeSampler sampler(
      {.kind = train::NegativeKind::kInBatch, .count = 16, .shared = true}, 8, counts);
  PhiloxStream random(12);
  std::vector<double> seen(8);
  double drawn = 0;
  constexpr int kSteps = 20000;
  for (int step = 0; step < kSteps; ++step) {
    Ids targets;
    for (int i = 0; i < 10; ++i) {
      auto place = static_cast<std::int64_t>(random.below(255));
      std::int64_t item = 0;
      while (place >= counts[static_cast<std::size_t>(item)]) {
        place -= counts[static_cast<std::size_t>(item++)];
      }
      targets.push_back(item);
    }
    sampler.begin_step({.seed = 1, .step = static_cast<std::uint64_t>(step)});
    sampler.add_positives(view(targets));
    sampler.finish_positives();
    Ids ids(16);
    const std::int64_t count = sampler.draw_shared(ctx, 0, {ids.data(), {16}});
    for (std::int64_t i = 0; i < count; ++i) seen[static_cast<std::size_t>(ids[i])] += 1;
    drawn += static_cast<double>(count);
  }
  for (std::size_t i = 0; i < 8; ++i) {
    const double expected = drawn * std::exp(sampler.correction(static_cast<std::int64_t>(i))) / 8;
    EXPECT_NEAR(seen[i], expected, 4 * std::sqrt(expected)) << i;
  }
}

TEST(NegativeSampler, MixesFixedPartsAndCorrectsForTheWhole) {
  const Ids counts = {10, 20, 30, 40, 0, 0};
  train::NegativeSampler sampler(
      {.kind = train::NegativeKind::kMixed, .count = 8, .alpha = 1, .mix = {2, 1, 1}}, 6, counts);
  sampler.begin_step({.seed = 3, .step = 3});
  sampler.add_positives(view({1, 1, 3}));
  sampler.finish_positives();
  const Ids ids = draw_own(sampler, keys_of(6000));
  const std::vector<double> popular = {0.1, 0.2, 0.3, 0.4, 0, 0};
  Ids by_part[3];
  for (std::size_t i = 0; i < ids.size(); ++i) {
    by_part[i % 8 < 4 ? 0 : i % 8 < 6 ? 1 : 2].push_back(ids[i]);
  }
  expect_distribution(by_part[0], std::vector<double>(6, 1.0 / 6));
  expect_distribution(by_part[1], popular);
  expect_distribution(by_part[2], {0, 0.5, 0, 0.5, 0, 0});
  std::vector<double> inclusion;
  for (const double p : popular) inclusion.push_back(1 - std::pow(1 - p, 3));
  const std::vector<double> in_batch = normalised(inclusion);
  for (std::size_t i = 0; i < 6; ++i) {
    const double q = 0.5 / 6 + 0.25 * popular[i] + 0.25 * in_batch[i];
    EXPECT_NEAR(sampler.correction(static_cast<std::int64_t>(i)), std::log(6 * q), 1e-13);
  }
  const Context ctx({.threads = 2});
  std::vector<float> corrections(2);
  sampler.corrections(ctx, view({5, 2}), {corrections.data(), {2}});
  EXPECT_EQ(corrections[0], static_cast<float>(sampler.correction(5)));
  EXPECT_EQ(corrections[1], static_cast<float>(sampler.correction(2)));
}

TEST(NegativeSampler, DependsOnSeedStepAndKeyAlone) {
  const Ids counts = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const train::NegativeOptions options = {
      .kind = train::NegativeKind::kMixed, .count = 7, .mix = {1, 1, 1}};
  const auto drawn = [&](ops::NegativeKey key, const std::vector<std::uint64_t>& keys, int threads,
                         bool reversed = false) {
    train::NegativeSampler sampler(options, 10, counts);
    sampler.begin_step(key);
    Ids targets = {3, 1, 4, 1, 5, 9, 2, 6};
    if (reversed) std::reverse(targets.begin(), targets.end());
    sampler.add_positives(view(targets));
    sampler.finish_positives();
    return draw_own(sampler, keys, threads);
  };
  const auto keys = keys_of(5000);
  const Ids ids = drawn({5, 3}, keys, 1);
  EXPECT_EQ(ids, drawn({5, 3}, keys, 2));
  EXPECT_EQ(ids, drawn({5, 3}, keys, 3, /*reversed=*/true));
  EXPECT_NE(ids, drawn({5, 4}, keys, 1));
  EXPECT_NE(ids, drawn({6, 3}, keys, 1));
  // A token keeps its draws wherever it stands in the batch.
  const Ids alone = drawn({5, 3}, {keys[42]}, 1);
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), ids.begin() + 42 * 7));
}

TEST(NegativeSampler, SharedSetsDifferByStepAndPart) {
  const Context ctx({.threads = 2});
  train::NegativeSampler sampler({.count = 9, .shared = true}, 1000);
  const auto drawn = [&](std::uint64_t step, std::int64_t part) {
    Ids ids(9, -1);
    sampler.begin_step({.seed = 1, .step = step});
    EXPECT_EQ(sampler.draw_shared(ctx, part, {ids.data(), {9}}), 9);
    return ids;
  };
  EXPECT_EQ(drawn(0, 0), drawn(0, 0));
  EXPECT_NE(drawn(0, 0), drawn(1, 0));
  EXPECT_NE(drawn(0, 0), drawn(0, 1));
}

TEST(NegativeSampler, ASharedInBatchSetRepeatsNothing) {
  const Context ctx({.threads = 2});
  train::NegativeSampler sampler(
      {.kind = train::NegativeKind::kInBatch, .count = 6, .shared = true}, 40, Ids(40, 2));
  Ids ids(6, -1);
  std::vector<double> seen(40);
  for (std::uint64_t step = 0; step < 400; ++step) {
    sampler.begin_step({.seed = 1, .step = step});
    sampler.add_positives(view({3, 8, 8, 13, 20, 21, 30, 31, 3, 39}));
    sampler.finish_positives();
    ASSERT_EQ(sampler.draw_shared(ctx, 0, {ids.data(), {6}}), 6);
    EXPECT_EQ(std::set<std::int64_t>(ids.begin(), ids.end()).size(), 6u);
    for (const std::int64_t id : ids) seen[static_cast<std::size_t>(id)] += 1;
  }
  for (const std::size_t id : {3u, 8u, 13u, 20u, 21u, 30u, 31u, 39u}) {
    EXPECT_NEAR(seen[id], 400 * 6 / 8.0, 50) << id;
  }
  // Fewer than asked for: all of them.
  sampler.begin_step({.seed = 1, .step = 0});
  sampler.add_positives(view({5, 9, 5}));
  sampler.finish_positives();
  ASSERT_EQ(sampler.draw_shared(ctx, 0, {ids.data(), {6}}), 2);
  EXPECT_EQ(std::set<std::int64_t>(ids.begin(), ids.begin() + 2), (std::set<std::int64_t>{5, 9}));
}

TEST(NegativeSampler, CutsACountByTheMix) {
  const auto parts = [](std::int64_t count, std::array<std::int64_t, 3> mix) {
    return train::negative_parts({.kind = train::NegativeKind::kMixed, .count = count, .mix = mix});
  };
  using Parts = std::array<std::int64_t, 3>;
  EXPECT_EQ(parts(8, {2, 1, 1}), (Parts{4, 2, 2}));
  EXPECT_EQ(parts(10, {1, 1, 1}), (Parts{4, 3, 3}));
  EXPECT_EQ(parts(11, {0, 2, 1}), (Parts{0, 7, 4}));
  EXPECT_EQ(train::negative_parts({.kind = train::NegativeKind::kInBatch, .count = 5}),
            (Parts{0, 0, 5}));
  EXPECT_EQ(message_of([&] {
              parts(4, {100, 1, 1});
            }),
            "the mix [100, 1, 1] leaves popularity without a draw among 4 negatives; raise the "
            "count or that part");
  EXPECT_EQ(message_of([&] {
              parts(4, {0, 0, 0});
            }),
            "the mix of negatives is all 0; one part must be above 0");
  EXPECT_EQ(message_of([&] {
              parts(4, {-1, 0, 2});
            }),
            "a part of -1 in the mix of negatives; use 0 to 1048576");
  EXPECT_EQ(message_of([&] { parts(0, {1, 0, 0}); }), "0 negatives; give at least 1");
}

TEST(NegativeSampler, SaysWhatIsWrong) {
  const auto made = [](const train::NegativeOptions& options, std::int64_t items,
                       const Ids& counts) {
    return message_of([&] { train::NegativeSampler(options, items, counts); });
  };
  EXPECT_EQ(made({}, 0, {}), "negatives from a catalogue of 0 items; it needs 1 or more");
  const train::NegativeOptions popular = {.kind = train::NegativeKind::kPopularity};
  EXPECT_EQ(made(popular, 3, {1, 2}),
            "popularity of 2 items for a catalogue of 3; give each item's count");
  EXPECT_EQ(made(popular, 2, {0, 0}),
            "no item of the catalogue was ever a target; popularity means nothing here");
  EXPECT_EQ(made(popular, 2, {4, -1}), "an item was counted -1 times; counts start at 0");
  EXPECT_EQ(made({.kind = train::NegativeKind::kPopularity, .alpha = 1e6}, 2, {4, 2}),
            "popularity to the power of alpha = 1e+06 does not fit a number; use a smaller alpha");
  EXPECT_EQ(message_of([] { train::negative_kind_from_name("zipf"); }),
            "unknown sampler of negatives 'zipf'; use uniform, popularity, in_batch or mixed");
  EXPECT_EQ(train::negative_kind_from_name("mixed"), train::NegativeKind::kMixed);
  const Context ctx({.threads = 1});
  Ids ids(3);
  train::NegativeSampler own({.count = 3}, 5);
  EXPECT_EQ(message_of([&] {
              own.draw_shared(ctx, 0, {ids.data(), {3}});
            }),
            "a shared set from a sampler of sets a token; set shared = true");
  EXPECT_EQ(message_of([&] {
              own.draw_shared(ctx, 0, {ids.data(), {2}});
            }),
            "room for 2 shared negatives of 3");
}

TEST(TokenOrder, IsAPermutationThatFollowsTheKeys) {
  train::TokenOrder order;
  const auto shuffled = [&](ops::NegativeKey key, const std::vector<std::uint64_t>& keys) {
    const auto tokens = static_cast<std::int64_t>(keys.size());
    std::vector<std::int32_t> places(keys.size(), -1);
    order.shuffle(key, {keys.data(), {tokens}}, {places.data(), {tokens}});
    return places;
  };
  std::vector<std::uint64_t> keys(500);
  std::iota(keys.begin(), keys.end(), 1000);  // neighbours in a sequence
  const std::vector<std::int32_t> first = shuffled({1, 7}, keys);
  std::vector<std::int32_t> sorted = first;
  std::sort(sorted.begin(), sorted.end());
  for (std::int32_t i = 0; i < 500; ++i) EXPECT_EQ(sorted[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(first, shuffled({1, 7}, keys));
  EXPECT_NE(first, shuffled({1, 8}, keys));
  EXPECT_NE(first, shuffled({2, 7}, keys));
  int neighbours = 0;
  for (std::size_t s = 0; s + 1 < 500; ++s) neighbours += std::abs(first[s] - first[s + 1]) == 1;
  EXPECT_LT(neighbours, 10);  // two expected
  // The same partners wherever the tokens stand.
  std::vector<std::uint64_t> reversed(keys.rbegin(), keys.rend());
  const std::vector<std::int32_t> again = shuffled({1, 7}, reversed);
  for (std::size_t s = 0; s < 500; ++s) EXPECT_EQ(again[s], 499 - first[s]);
  EXPECT_TRUE(shuffled({1, 7}, {}).empty());
}

TEST(DrawNegatives, SaysWhatIsWrong) {
  const Context ctx({.threads = 1});
  const std::vector<std::uint64_t> keys = {1, 2};
  Ids ids(8);
  const auto call = [&](const ops::NegativeSource& source, std::int64_t rows, std::int64_t cols,
                        std::uint64_t step = 0) {
    return message_of([&] {
      ops::draw_negatives(ctx, source, {.step = step}, {keys.data(), {2}},
                          {ids.data(), {rows, cols}});
    });
  };
  EXPECT_EQ(call({}, 2, 0), "draw_negatives: a catalogue of 0 items; it needs 1 or more");
  EXPECT_EQ(call({.catalogue = 3, .uniform = 4}, 2, 3),
            "draw_negatives: room for 3 negatives a token for 4 draws");
  EXPECT_EQ(call({.catalogue = 3, .uniform = 4}, 1, 4), "draw_negatives: 2 row keys for 1 tokens");
  EXPECT_EQ(call({.catalogue = 3, .uniform = 4}, 2, 4, std::uint64_t{1} << 39),
            "draw_negatives: step 549755813888; at most 2^39 - 1");
  EXPECT_EQ(call({.catalogue = 3, .popular = 4}, 2, 4),
            "draw_negatives: an alias table of 0 slots for 3 items; give one of them all");
  EXPECT_EQ(call({.catalogue = 3, .in_batch = 4}, 2, 4),
            "draw_negatives: in-batch draws from no candidates; give the batch's positives");
  EXPECT_EQ(call({.catalogue = 3, .uniform = 5, .popular = -1}, 2, 4),
            "draw_negatives: 5 uniform, -1 popular and 0 in-batch draws; none may be below 0");
  EXPECT_EQ(call({.catalogue = 3}, 2, 0), "");
}

TEST(NegativeSampler, OfTrainedItemsOnlyDrawsThoseEvenly) {
  const Ids counts = {0, 3, 1, 0, 9, 1, 0};
  for (const NegativeKind kind : {NegativeKind::kUniform, NegativeKind::kMixed}) {
    NegativeOptions options = {.kind = kind, .count = 64, .trained_only = true};
    if (kind == NegativeKind::kMixed) {
      options.alpha = 0.5;
      options.mix = {1, 1, 0};
    }
    NegativeSampler sampler(options, std::ssize(counts), counts);
    sampler.begin_step({3, 5});
    std::vector<double> probability = {0, .25, .25, 0, .25, .25, 0};
    if (kind == NegativeKind::kMixed) {
      const double all = std::sqrt(3.0) + 1 + 3 + 1;
      for (std::size_t i = 0; i < counts.size(); ++i) {
        probability[i] = probability[i] / 2 + std::sqrt(static_cast<double>(counts[i])) / all / 2;
        if (counts[i] == 0) continue;
        EXPECT_NEAR(sampler.correction(static_cast<std::int64_t>(i)), std::log(7 * probability[i]),
                    1e-9);
      }
    }
    expect_distribution(draw_own(sampler, keys_of(200)), probability);
  }
  const Ids nobody(7);
  EXPECT_NE(message_of([&] {
              NegativeSampler({.trained_only = true}, 7, nobody);
            }).find("nothing to draw negatives from"),
            std::string::npos);
}

}  // namespace
}  // namespace turbogr::train
