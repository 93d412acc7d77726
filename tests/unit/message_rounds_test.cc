// Lists of messages: what one rank sends is what its peer waits for, and everything gets there.
#include "turbogr/dist/message_rounds.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "turbogr/core/philox.h"

namespace turbogr::dist {
namespace {

// Bytes that `from` has for `to` in each round, and bytes that `to` waits for.
void expect_matching(const std::vector<std::vector<Round>>& ranks) {
  for (std::size_t round = 0; round < ranks[0].size(); ++round) {
    std::map<std::pair<int, int>, std::int64_t> sent, awaited;
    for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
      const auto& rounds = ranks[static_cast<std::size_t>(rank)];
      ASSERT_EQ(rounds.size(), ranks[0].size());
      for (const Message& m : rounds[round].sends) sent[{rank, m.peer}] += m.bytes;
      for (const Message& m : rounds[round].receives) awaited[{m.peer, rank}] += m.bytes;
    }
    EXPECT_EQ(sent, awaited) << ranks.size() << " ranks, round " << round;
  }
}

// A message takes parts to where they belong, and only parts that its sender has by then; in the
// end every rank has had each part once.
void expect_all_parts_arrive(const std::vector<std::int64_t>& counts,
                             const std::vector<std::vector<Round>>& ranks) {
  const auto size = ranks.size();
  std::vector<std::int64_t> begins = {0};
  for (const std::int64_t count : counts) begins.push_back(begins.back() + count);
  std::vector<std::vector<int>> has(size, std::vector<int>(size));
  for (std::size_t rank = 0; rank < size; ++rank) has[rank][rank] = 1;
  // Calls body with every part of a message, which must be whole.
  const auto for_parts = [&](const Message& message, auto&& body) {
    std::int64_t covered = 0;
    for (std::size_t part = 0; part < size; ++part) {
      if (counts[part] == 0 || begins[part] < message.begin ||
          begins[part + 1] > message.begin + message.bytes) {
        continue;
      }
      covered += counts[part];
      body(part);
    }
    EXPECT_EQ(covered, message.bytes);
  };
  for (std::size_t round = 0; round < ranks[0].size(); ++round) {
    std::vector<std::vector<int>> then = has;
    for (std::size_t rank = 0; rank < size; ++rank) {
      std::map<int, std::vector<std::int64_t>> sent;
      for (const Message& m : ranks[rank][round].sends) {
        for_parts(m, [&](std::size_t part) {
          EXPECT_EQ(has[rank][part], 1);
          ++then[static_cast<std::size_t>(m.peer)][part];
        });
        sent[m.peer].push_back(m.begin);
      }
      for (const auto& [peer, places] : sent) {  // in the order in which they are awaited
        std::vector<std::int64_t> awaited;
        for (const Message& m : ranks[static_cast<std::size_t>(peer)][round].receives) {
          if (m.peer == static_cast<int>(rank)) awaited.push_back(m.begin);
        }
        EXPECT_EQ(places, awaited);
      }
    }
    has = then;
  }
  for (const std::vector<int>& parts : has) {
    for (std::size_t part = 0; part < size; ++part) {
      EXPECT_TRUE(parts[part] == 1 || counts[part] == 0);
    }
  }
}

TEST(MessageRounds, MeetTheirReceiversInEveryCollective) {
  for (int size = 1; size <= 19; ++size) {
    PhiloxStream random(3, static_cast<std::uint64_t>(size));
    std::vector<std::int64_t> counts;
    for (int rank = 0; rank < size; ++rank) {
      counts.push_back(static_cast<std::int64_t>(random.below(50)));
    }
    for (const std::int64_t factor : {1, 100'000}) {
      std::vector<std::int64_t> bytes = counts;
      for (std::int64_t& count : bytes) count *= factor;
      std::vector<std::vector<Round>> gathers;
      for (int rank = 0; rank < size; ++rank) gathers.push_back(all_gather_rounds(rank, bytes));
      expect_matching(gathers);
      expect_all_parts_arrive(bytes, gathers);
    }
    for (const std::int64_t count : {3, 10'000}) {
      std::vector<std::vector<Round>> sums;
      for (int rank = 0; rank < size; ++rank) {
        sums.push_back(all_reduce_rounds(rank, size, count, 8));
      }
      expect_matching(sums);
    }
    std::vector<std::vector<Round>> exchanges;
    const auto part = [&](int from, int to) { return std::int64_t{(from * 7 + to * 3) % 5}; };
    for (int rank = 0; rank < size; ++rank) {
      std::vector<std::int64_t> send, receive;
      for (int peer = 0; peer < size; ++peer) {
        send.push_back(part(rank, peer));
        receive.push_back(part(peer, rank));
      }
      exchanges.push_back({all_to_all_round(send, receive)});
    }
    expect_matching(exchanges);
  }
}

// However many bytes: nobody is sent to by all others at once but in the first half of a large sum.
TEST(MessageRounds, OfManyRanksAreFewForManyBytes) {
  const std::vector<std::int64_t> counts(4096, 1 << 20);
  const std::vector<Round> gather = all_gather_rounds(17, counts);
  EXPECT_EQ(gather.size(), 12u);
  std::int64_t received = 0;
  for (const Round& round : gather) {
    EXPECT_LE(round.sends.size(), 2u);
    for (const Message& m : round.receives) received += m.bytes;
  }
  EXPECT_EQ(received, std::int64_t{4095} << 20);  // no byte twice
  EXPECT_EQ(all_reduce_rounds(17, 4096, 1 << 20, 8).size(), 13u);
}

TEST(MessageRounds, OfManyRanksAreFewForSmallNumbers) {
  EXPECT_EQ(all_reduce_rounds(17, 4096, 3, 8).size(), 12u);  // twice as many ranks a round
  EXPECT_EQ(all_reduce_rounds(17, 4096, 3, 8)[11].sends.size(), 1u);
  EXPECT_EQ(all_reduce_rounds(5, 8, 3, 8).size(), 1u);
}

}  // namespace
}  // namespace turbogr::dist
