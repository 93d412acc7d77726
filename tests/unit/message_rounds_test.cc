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

TEST(MessageRounds, MeetTheirReceiversInEveryCollective) {
  for (int size = 1; size <= 19; ++size) {
    PhiloxStream random(3, static_cast<std::uint64_t>(size));
    std::vector<std::int64_t> counts;
    for (int rank = 0; rank < size; ++rank) {
      counts.push_back(static_cast<std::int64_t>(random.below(50)));
    }
    for (const std::int64_t factor : {1, 100'000}) {  // small ones, and ones not gathered in rounds
      std::vector<std::int64_t> bytes = counts;
      for (std::int64_t& count : bytes) count *= factor;
      std::vector<std::vector<Round>> gathers;
      for (int rank = 0; rank < size; ++rank) gathers.push_back(all_gather_rounds(rank, bytes));
      expect_matching(gathers);
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

TEST(MessageRounds, OfManyRanksAreFewForSmallNumbers) {
  EXPECT_EQ(all_reduce_rounds(17, 4096, 3, 8).size(), 12u);  // twice as many ranks a round
  EXPECT_EQ(all_reduce_rounds(17, 4096, 3, 8)[11].sends.size(), 1u);
  EXPECT_EQ(all_reduce_rounds(5, 8, 3, 8).size(), 1u);
}

}  // namespace
}  // namespace turbogr::dist
