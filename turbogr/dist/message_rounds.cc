#include "turbogr/dist/message_rounds.h"

#include <algorithm>
#include <utility>

namespace turbogr::dist {
namespace {

// Below this an all-reduce sends everything to everybody: one exchange instead of two.
constexpr std::int64_t kSmallBytes = 4096;

Round gather_round(int rank, std::span<const std::int64_t> counts) {
  const std::int64_t own = counts[static_cast<std::size_t>(rank)];
  std::int64_t offset = 0, own_offset = 0;
  Round round;
  for (int peer = 0; peer < static_cast<int>(counts.size()); ++peer) {
    const std::int64_t bytes = counts[static_cast<std::size_t>(peer)];
    if (peer == rank) own_offset = offset;
    if (peer != rank && bytes > 0) round.receives.push_back({peer, offset, bytes});
    offset += bytes;
  }
  for (int peer = 0; peer < static_cast<int>(counts.size()) && own > 0; ++peer) {
    if (peer != rank) round.sends.push_back({peer, own_offset, own});
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

std::vector<Round> all_gather_rounds(int rank, std::span<const std::int64_t> counts) {
  const auto ranks = static_cast<int>(counts.size());
  if (ranks <= kFewRanks) return {gather_round(rank, counts)};
  std::vector<std::int64_t> begins = {0};
  for (const std::int64_t count : counts) begins.push_back(begins.back() + count);
  // Parts of `number` ranks from `first` on, which may begin again at rank 0: two messages then.
  const auto parts = [&](int peer, int first, int number, std::vector<Message>& messages) {
    first %= ranks;
    const int past = std::min(first + number, ranks);
    for (const auto& [from, to] : {std::pair(first, past), {0, first + number - past}}) {
      const std::int64_t begin = begins[static_cast<std::size_t>(from)];
      const std::int64_t bytes = begins[static_cast<std::size_t>(to)] - begin;
      if (bytes > 0) messages.push_back({peer, begin, bytes});
    }
  };
  std::vector<Round> rounds;
  for (int reach = 1; reach < ranks; reach *= 2) {
    const int more = std::min(reach, ranks - reach);  // parts that change hands
    Round& round = rounds.emplace_back();
    parts((rank - reach + ranks) % ranks, rank, more, round.sends);
    parts((rank + reach) % ranks, rank + reach, more, round.receives);
  }
  return rounds;
}

Cut cut_of(std::int64_t count, int size, int rank) {
  const std::int64_t part = (count + size - 1) / size;
  return {std::min(count, rank * part), std::min(count, (rank + 1) * part)};
}

bool sums_by_gathering(std::int64_t count, std::int64_t width) {
  return count * width <= kSmallBytes;
}

std::vector<Round> all_reduce_rounds(int rank, int size, std::int64_t count, std::int64_t width) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(size), count * width);
  if (sums_by_gathering(count, width)) return all_gather_rounds(rank, counts);
  for (int peer = 0; peer < size; ++peer) {
    const Cut cut = cut_of(count, size, peer);
    counts[static_cast<std::size_t>(peer)] = (cut.end - cut.begin) * width;
  }
  const std::vector<std::int64_t> own(counts.size(), counts[static_cast<std::size_t>(rank)]);
  std::vector<Round> rounds = all_gather_rounds(rank, counts);
  rounds.insert(rounds.begin(), all_to_all_round(counts, own));
  return rounds;
}

}  // namespace turbogr::dist
