// Numbers of rows a rank, and exchanges of that many values.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "turbogr/dist/communicator.h"

namespace turbogr::embedding {

inline constexpr std::int64_t kRowsAtATime = 256;  // copied by one thread

inline std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

inline std::vector<std::int64_t> times(const std::vector<std::int64_t>& counts,
                                       std::int64_t factor) {
  std::vector<std::int64_t> scaled(counts);
  for (std::int64_t& count : scaled) count *= factor;
  return scaled;
}

// One number to and from every rank of the group.
inline void exchange_counts(dist::Communicator& group, const std::vector<std::int64_t>& send,
                            std::vector<std::int64_t>& receive) {
  const std::vector<std::int64_t> eight(send.size(), sizeof(std::int64_t));
  receive.resize(send.size());
  group.all_to_all({send.data(), eight}, {receive.data(), eight});
}

template <class T>
void exchange_values(dist::Communicator& group, const std::vector<T>& send,
                     const std::vector<std::int64_t>& send_counts, std::vector<T>& receive,
                     const std::vector<std::int64_t>& receive_counts) {
  receive.resize(static_cast<std::size_t>(sum_of(receive_counts)));
  group.all_to_all({send.data(), times(send_counts, sizeof(T))},
                   {receive.data(), times(receive_counts, sizeof(T))});
}

}  // namespace turbogr::embedding
