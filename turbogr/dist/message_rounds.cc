#include "turbogr/dist/message_rounds.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace turbogr::dist {
namespace {

// Below this an all-reduce sends everything to everybody: one exchange instead of two.
constexpr std::int64_t kSmallBytes = 4096;
// Of all ranks together: beyond, the bytes take longer than the rounds save.
constexpr std::int64_t kSmallGather = 256 << 10;

std::vector<Round> bruck_rounds(int rank, std::span<const std::int64_t> counts) {
  const auto ranks = static_cast<int>(counts.size());
  std::vector<std::int64_t> ends = {0};  // of the parts by distance from this rank
  for (int distance = 0; distance < ranks; ++distance) {
    const int other = (rank + distance) % ranks;
    ends.push_back(ends.back() + counts[static_cast<std::size_t>(other)]);
  }
  std::vector<Round> rounds;
  // After each round a rank has the parts of twice as many ranks from its own on.
  for (int reach = 1; reach < ranks; reach *= 2) {
    const int more = std::min(reach, ranks - reach);  // parts that change hands
    const int reached = reach + more;
    const std::int64_t begin = ends[static_cast<std::size_t>(reach)];
    const std::int64_t end = ends[static_cast<std::size_t>(reached)];
    rounds.push_back(
        {.sends = {{(rank - reach + ranks) % ranks, 0, ends[static_cast<std::size_t>(more)]}},
         .receives = {{(rank + reach) % ranks, begin, end - begin}}});
  }
  return rounds;
}

Round gather_round(int rank, std::span<const std::int64_t> counts) {
  const std::int64_t own = counts[static_cast<std::size_t>(rank)];
  Round round;
  std::int64_t offset = 0;
  for (int peer = 0; peer < static_cast<int>(counts.size()); ++peer) {
    const std::int64_t bytes = counts[static_cast<std::size_t>(peer)];
    if (own > 0) round.sends.push_back({peer, 0, own});
    if (bytes > 0) round.receives.push_back({peer, offset, bytes});
    offset += bytes;
  }
  return round;
}

}  // namespace

Round all_to_all_round(std::span<const std::int64_t> send, std::span<const std::int64_t> receive) {
  Round round;
  std::int64_t sent = 0, received = 0;
  for (int peer = 0; peer < static_cast<int>(send.size()); ++peer) {
    const std::int64_t out = send[static_cast<std::size_t>(peer)];
    const std::int64_t in = receive[static_cast<std::size_t>(peer)];
    if (out > 0) round.sends.push_back({peer, sent, out});
    if (in > 0) round.receives.push_back({peer, received, in});
    sent += out;
    received += in;
  }
  return round;
}

bool gathers_in_rounds(std::span<const std::int64_t> counts) {
  return static_cast<int>(counts.size()) > kFewRanks &&
         std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) <= kSmallGather;
}

std::vector<Round> all_gather_rounds(int rank, std::span<const std::int64_t> counts) {
  if (gathers_in_rounds(counts)) return bruck_rounds(rank, counts);
  return {gather_round(rank, counts)};
}

Cut cut_of(std::int64_t count, int size, int rank) {
  const std::int64_t part = (count + size - 1) / size;
  return {std::min(count, rank * part), std::min(count, (rank + 1) * part)};
}

bool sums_by_gathering(std::int64_t count, std::int64_t width) {
  return count * width <= kSmallBytes;
}

std::vector<Round> all_reduce_rounds(int rank, int size, std::int64_t count, std::int64_t width) {
  if (sums_by_gathering(count, width)) {
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size), count * width);
    if (size > kFewRanks) return bruck_rounds(rank, counts);
    return {gather_round(rank, counts)};
  }
  const Cut own = cut_of(count, size, rank);
  const std::int64_t own_bytes = (own.end - own.begin) * width;
  Round reduced, spread;
  for (int peer = 0; peer < size; ++peer) {
    const Cut cut = cut_of(count, size, peer);
    const std::int64_t bytes = (cut.end - cut.begin) * width;
    if (bytes > 0) reduced.sends.push_back({peer, cut.begin * width, bytes});
    if (own_bytes > 0) reduced.receives.push_back({peer, peer * own_bytes, own_bytes});
    if (peer == rank) continue;
    if (own_bytes > 0) spread.sends.push_back({peer, own.begin * width, own_bytes});
    if (bytes > 0) spread.receives.push_back({peer, cut.begin * width, bytes});
  }
  return {std::move(reduced), std::move(spread)};
}

}  // namespace turbogr::dist
