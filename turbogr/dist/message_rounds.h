// Which messages each collective is made of, for one rank: rounds of sends and receives, a round
// beginning when the one before is done. HostCommunicator sends them; plan/ times them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace turbogr::dist {

// Up to so many ranks everybody is sent to at once; beyond, barriers, broadcasts and small gathers
// go in rounds, each rank sending to one other a round and reaching twice as many as the round
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

// Every rank's bytes to every rank. Small ones go in Bruck's rounds, through a buffer in which the
// parts stand by their distance from this rank: `counts` bytes of the next rank behind its own.
bool gathers_in_rounds(std::span<const std::int64_t> counts);
std::vector<Round> all_gather_rounds(int rank, std::span<const std::int64_t> counts);

// The range of `count` values that a rank adds up.
struct Cut {
  std::int64_t begin, end;
};
Cut cut_of(std::int64_t count, int size, int rank);

// A sum of `count` values of `width` bytes over `size` ranks. Small ones are gathered; else every
// rank gets all versions of its cut, into scratch, and gives its sums to all.
bool sums_by_gathering(std::int64_t count, std::int64_t width);
std::vector<Round> all_reduce_rounds(int rank, int size, std::int64_t count, std::int64_t width);

}  // namespace turbogr::dist
