// Which messages each collective is made of, for one rank: rounds of sends and receives, a round
// beginning when the one before is done. HostCommunicator sends them; plan/ times them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace turbogr::dist {

// Up to so many ranks a gather sends to everybody at once; beyond, it goes in rounds, as barriers
// and broadcasts do: each rank sends to one other a round and reaches twice as many as the round
// before.
inline constexpr int kFewRanks = 8;

struct Message {
  int peer;            // rank of the group
  std::int64_t begin;  // where in the sender's or the receiver's memory
  std::int64_t bytes;
};

struct Round {
  std::vector<Message> sends, receives;
};

// Part r of a rank's memory goes to rank r, and part r arrives from it; counts in bytes.
Round all_to_all_round(std::span<const std::int64_t> send, std::span<const std::int64_t> receive);

// Every rank's bytes to every rank, within memory that has all parts by rank, and this rank's own
// there already. Of many ranks in the rounds of Bruck: after each a rank has the parts of twice as
// many ranks from its own on.
std::vector<Round> all_gather_rounds(int rank, std::span<const std::int64_t> counts);

// The range of `count` values that a rank adds up.
struct Cut {
  std::int64_t begin, end;
};
Cut cut_of(std::int64_t count, int size, int rank);

// A sum of `count` values of `width` bytes over `size` ranks. Small ones are gathered, all versions
// one behind the other; else every rank gets all versions of its cut, into scratch, and the sums of
// the cuts are gathered.
bool sums_by_gathering(std::int64_t count, std::int64_t width);
std::vector<Round> all_reduce_rounds(int rank, int size, std::int64_t count, std::int64_t width);

}  // namespace turbogr::dist
