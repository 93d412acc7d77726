// Cost models, partitioners and the replay of length tables.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "bench/balance_replay.h"
#include "bench/lengths.h"
#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/balance/balancer.h"
#include "turbogr/balance/cost_model.h"
#include "turbogr/balance/differencing.h"
#include "turbogr/core/philox.h"

namespace turbogr::balance {
namespace {

using test::message_of;

std::vector<double> work_of(std::span<const std::int64_t> lengths,
                            std::span<const std::int32_t> rank_of, int ranks,
                            const CostModel& cost) {
  std::vector<double> work(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    work.at(static_cast<std::size_t>(rank_of[i])) += cost.cost(lengths[i]);
  }
  return work;
}

TEST(CostModel, WaitingShareIsWhatRanksWaitForTheSlowest) {
  EXPECT_DOUBLE_EQ(waiting_share(std::vector<double>{1, 1, 1, 1}), 0);
  EXPECT_DOUBLE_EQ(waiting_share(std::vector<double>{4, 2, 2, 0}), 0.5);
  EXPECT_DOUBLE_EQ(waiting_share(std::vector<double>{0, 0}), 0);
  EXPECT_DOUBLE_EQ(waiting_share({}), 0);
}

TEST(CostModel, IsFittedToMeasuredTimes) {
  const std::vector<double> tokens = {100, 200, 300}, pairs = {1000, 9000, 20000};
  std::vector<double> seconds;
  for (int i = 0; i < 3; ++i) {
    const auto at = static_cast<std::size_t>(i);
    seconds.push_back(0.25 * tokens[at] + 0.5 * pairs[at]);
  }
  const CostModel fitted = fit_cost(tokens, pairs, seconds);
  EXPECT_NEAR(fitted.per_token, 0.25, 1e-9);
  EXPECT_NEAR(fitted.per_pair, 0.5, 1e-9);
  // A term that would be negative is left out, and the other fitted alone.
  const CostModel flat =
      fit_cost(tokens, pairs, std::vector<double>{2 * 100, 2 * 200 - 1.0, 2 * 300 - 3.0});
  EXPECT_EQ(flat.per_pair, 0);
  EXPECT_NEAR(flat.per_token, 2, 0.02);
  const CostModel steep = fit_cost(tokens, pairs, std::vector<double>{999, 8999, 19990});
  EXPECT_GE(steep.per_token, 0);
  EXPECT_NEAR(steep.per_pair, 1, 0.01);
  EXPECT_NE(
      message_of([&] {
        fit_cost(std::vector<double>{5, 5}, std::vector<double>{25, 25}, std::vector<double>{1, 1});
      }).find("cannot tell"),
      std::string::npos);
  EXPECT_NE(message_of([&] { fit_cost(tokens, pairs, std::vector<double>{1}); }).find("3 and 3"),
            std::string::npos);
}

// Three numbers against three: longest first cannot see 8 + 7 = 6 + 5 + 4, differencing can.
TEST(Differencing, FindsWhatLongestFirstMisses) {
  const std::vector<std::int64_t> lengths = {8, 7, 6, 5, 4};
  const CostModel cost;
  Balancer greedy({.ranks = 2, .method = Method::kLongestFirst, .polish = false});
  greedy.plan(lengths);
  EXPECT_EQ(*std::max_element(greedy.work().begin(), greedy.work().end()), 17);
  Balancer differencing({.ranks = 2, .method = Method::kKarmarkarKarp, .polish = false});
  differencing.plan(lengths);
  EXPECT_EQ(*std::max_element(differencing.work().begin(), differencing.work().end()), 16);
  Balancer both({.ranks = 2});
  both.plan(lengths);
  EXPECT_EQ(*std::max_element(both.work().begin(), both.work().end()), 15);  // after a swap
}

TEST(Differencing, OfManyPartsIsNearEven) {
  PhiloxStream random(3);
  std::vector<double> costs;
  for (int i = 0; i < 600; ++i) costs.push_back(1 + random.uniform());
  std::vector<std::int32_t> order(costs.size()), part_of(costs.size(), -1);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return costs[static_cast<std::size_t>(a)] > costs[static_cast<std::size_t>(b)];
  });
  for (const int parts : {1, 2, 7, 32, 599, 600, 1000}) {
    difference(costs, order, parts, part_of);
    std::vector<double> work(static_cast<std::size_t>(parts));
    for (std::size_t i = 0; i < costs.size(); ++i) {
      work.at(static_cast<std::size_t>(part_of[i])) += costs[i];
    }
    EXPECT_LT(waiting_share(work), parts <= 32 ? 0.01 : 1.0) << parts;
    const double most = *std::max_element(work.begin(), work.end());
    EXPECT_TRUE(parts < 600 || most < 2.0) << parts;  // nobody has two
  }
}

// Nothing lost, nothing twice, no rank over its limit, and the figures reported are those of the
// plan: over random shapes, with and without a limit, for each method.
TEST(Balancer, KeepsEverySequenceOnceAndEveryLimit) {
  PhiloxStream random(11);
  for (int round = 0; round < 60; ++round) {
    const int ranks = 1 + static_cast<int>(random.below(9));
    const std::int64_t limit = 2000;
    std::vector<std::int64_t> lengths;
    std::vector<std::int32_t> current;
    for (int rank = 0; rank < ranks; ++rank) {
      std::int64_t used = 0;
      while (true) {
        const auto next = static_cast<std::int64_t>(random.below(700)) + (round % 3 == 0 ? 0 : 1);
        if (used + next > limit || (next == 0 && used > 900)) break;
        used += next;
        lengths.push_back(next);
        current.push_back(rank);
      }
    }
    const CostModel cost = {.per_token = 300, .per_pair = 1};
    for (const Method method : {Method::kBest, Method::kLongestFirst, Method::kKarmarkarKarp}) {
      for (const std::int64_t max_tokens : {std::int64_t{0}, limit}) {
        Balancer balancer(
            {.cost = cost, .ranks = ranks, .max_tokens = max_tokens, .method = method});
        balancer.plan(lengths, current);
        ASSERT_EQ(balancer.rank_of().size(), lengths.size());
        std::vector<std::int64_t> tokens(static_cast<std::size_t>(ranks));
        for (std::size_t i = 0; i < lengths.size(); ++i) {
          tokens.at(static_cast<std::size_t>(balancer.rank_of()[i])) += lengths[i];
        }
        EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), balancer.tokens().begin()));
        for (const std::int64_t each : tokens) {
          EXPECT_TRUE(max_tokens == 0 || each <= max_tokens);
        }
        const std::vector<double> work = work_of(lengths, balancer.rank_of(), ranks, cost);
        for (std::size_t rank = 0; rank < work.size(); ++rank) {
          EXPECT_NEAR(work[rank], balancer.work()[rank], 1e-6 * (1 + work[rank]));
        }
        EXPECT_LE(waiting_share(work),
                  waiting_share(work_of(lengths, current, ranks, cost)) + 1e-9);
        Balancer again({.cost = cost, .ranks = ranks, .max_tokens = max_tokens, .method = method});
        again.plan(lengths, current);
        EXPECT_TRUE(
            std::equal(again.rank_of().begin(), again.rank_of().end(), balancer.rank_of().begin()));
      }
    }
  }
}

// Many ranks are planned for in blocks: the same promises, and waiting as small.
TEST(Balancer, PlansForManyRanksInBlocks) {
  PhiloxStream random(5);
  const int ranks = 200;
  const std::int64_t limit = 4000;
  std::vector<std::int64_t> lengths;
  std::vector<std::int32_t> current;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    std::int64_t used = 0;
    while (true) {
      const auto next = static_cast<std::int64_t>(random.below(700)) + 1;
      if (used + next > limit - 300) break;  // some room to move
      used += next;
      lengths.push_back(next);
      current.push_back(rank);
    }
  }
  const CostModel cost = {.per_token = 300, .per_pair = 1};
  Balancer balancer({.cost = cost, .ranks = ranks, .max_tokens = limit, .block = 32});
  balancer.plan(lengths, current);
  const std::vector<double> work = work_of(lengths, balancer.rank_of(), ranks, cost);
  EXPECT_LT(waiting_share(work), 0.01);
  EXPECT_LE(*std::max_element(balancer.tokens().begin(), balancer.tokens().end()), limit);

  // Sequences that fill their ranks to the last token: there is no other plan than the one given,
  // or one as full.
  const std::vector<std::int64_t> full(2 * ranks, limit / 2);
  std::vector<std::int32_t> pairs;
  for (std::int32_t i = 0; i < 2 * ranks; ++i) pairs.push_back(i / 2);
  balancer.plan(full, pairs);
  EXPECT_EQ(*std::max_element(balancer.tokens().begin(), balancer.tokens().end()), limit);
  EXPECT_EQ(*std::min_element(balancer.tokens().begin(), balancer.tokens().end()), limit);
  const std::vector<std::int64_t> too_many(2 * ranks + 1, limit / 2);
  EXPECT_NE(message_of([&] { balancer.plan(too_many); }).find("found no place"), std::string::npos);
}

TEST(Balancer, FallsBackOnWhatItWasGiven) {
  // 6 + 6 and 4 + 4 + 4 fill two ranks of 12; longest first puts 6 with 4 and finds no room.
  const std::vector<std::int64_t> lengths = {6, 6, 4, 4, 4};
  const std::vector<std::int32_t> current = {0, 0, 1, 1, 1};
  Balancer balancer({.ranks = 2, .max_tokens = 12, .method = Method::kLongestFirst});
  balancer.plan(lengths, current);
  EXPECT_EQ(balancer.tokens()[0], 12);
  EXPECT_EQ(balancer.tokens()[1], 12);
  EXPECT_NE(message_of([&] { balancer.plan(lengths); }).find("24 tokens in 5 sequences"),
            std::string::npos);
}

TEST(Balancer, RefusesWhatCannotBe) {
  EXPECT_NE(message_of([] { Balancer({.ranks = 0}); }).find("0 ranks"), std::string::npos);
  EXPECT_NE(message_of([] {
              Balancer({.cost = {0, 0}, .ranks = 2});
            }).find("nor both zero"),
            std::string::npos);
  Balancer balancer({.ranks = 2});
  const std::vector<std::int64_t> negative = {3, -1}, two = {1, 2};
  const std::vector<std::int32_t> one = {0};
  EXPECT_NE(message_of([&] { balancer.plan(negative); }).find("sequence 1 has -1"),
            std::string::npos);
  EXPECT_NE(message_of([&] { balancer.plan(two, one); }).find("1 ranks for 2"), std::string::npos);
  const std::vector<std::int32_t> nobody = {0, 2};
  EXPECT_NE(message_of([&] { balancer.plan(two, nobody); }).find("rank 2 of 2"), std::string::npos);
  balancer.plan({});
  EXPECT_EQ(balancer.work()[0], 0);
}

TEST(BalanceReplay, ReallocationWaitsLessThanAPercent) {
  const std::vector<std::int64_t> table = bench::length_table("kuairand27k");
  EXPECT_EQ(table.size(), 27285u);
  EXPECT_EQ(table[table.size() / 2], 8594);
  const auto rows =
      bench::replay(table, {.ranks = 32, .steps = 20, .cost = {.per_token = 5121, .per_pair = 1}});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].strategy, "fixed");
  EXPECT_EQ(rows[1].strategy, "token");
  EXPECT_EQ(rows[2].strategy, "reallocation");
  EXPECT_LT(rows[2].waiting_mean, 0.01);
  EXPECT_LT(rows[2].waiting_mean, rows[1].waiting_mean / 5);
  EXPECT_LT(rows[1].waiting_mean, rows[0].waiting_mean);
  EXPECT_LE(rows[2].waiting_mean, rows[2].waiting_p99);
  EXPECT_NE(message_of([&] { bench::replay(table, {.cap = 100000}); }).find("do not fit"),
            std::string::npos);
}

TEST(BalanceReplay, ReadsTablesWithAByteOrderMarkAndNamesBadLines) {
  const test::TemporaryFolder folder;
  const auto table_of = [&](const std::string& text) {
    const std::string path = (folder / "lengths.csv").string();
    std::ofstream(path) << text;
    return bench::length_table(path);
  };
  EXPECT_EQ(table_of("\xEF\xBB\xBF"
                     "exposures,clicks\n10,2\r\n7,3\n"),
            (std::vector<std::int64_t>{10, 7}));
  EXPECT_EQ(table_of("5\n6"), (std::vector<std::int64_t>{5, 6}));
  EXPECT_EQ(table_of("\xEF\xBB\xBF"
                     "12,x\n"),
            (std::vector<std::int64_t>{12}));
  EXPECT_NE(message_of([&] { table_of("n\n3\nx,1\n"); }).find("line 3: 'x'"), std::string::npos);
  EXPECT_NE(message_of([&] { table_of("n\n0\n"); }).find("line 2: '0'"), std::string::npos);
  EXPECT_NE(message_of([&] { table_of("n\n"); }).find("holds no lengths"), std::string::npos);
  EXPECT_NE(message_of([&] { bench::length_table("nowhere.csv"); }).find("cannot read"),
            std::string::npos);
}

}  // namespace
}  // namespace turbogr::balance
