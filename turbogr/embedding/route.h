// How the distinct ids of one step reach the ranks that own them, and what the owners know of them.
// Made by ShardedTable::route; its memory goes round from step to step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace turbogr::embedding {

struct Route {
  // This rank as one that asks. Ids are grouped by owner.
  std::int64_t num_ids = 0;
  std::int64_t num_gradients = 0;      // rows that `order` points into; more in a part of a route
  std::vector<std::int64_t> asked_of;  // [G], ids asked of each rank
  std::vector<std::int32_t> order;     // [num_ids], place among the ids of the k-th one asked

  // This rank as an owner. Requests stand in the order of the ranks they came from.
  std::vector<std::int64_t> asked_by;        // [G]
  std::vector<std::int64_t> requests;        // [requests], own rows
  std::vector<std::int64_t> rows;            // [U], the distinct ones among them, ascending
  std::vector<std::int64_t> group_offsets;   // [U + 1]
  std::vector<std::int32_t> group_requests;  // [requests], those of each distinct row, in order

  // With exact replicas, the union over all groups; else the same as rows.
  std::vector<std::int64_t> touched;            // [W], ascending
  std::vector<std::int64_t> replica_counts;     // [M], distinct rows of each replica
  std::vector<std::int64_t> touched_offsets;    // [W + 1]
  std::vector<std::int32_t> touched_positions;  // positions among the replicas' rows, end to end

  std::vector<float> gradients;  // [W, D], summed; after ShardedTable::return_gradients

  // Buffers on the way.
  std::vector<std::byte> sending, receiving, replica_sums;
  std::vector<std::uint32_t> own_numbers, all_numbers;
  std::vector<std::int64_t> sending_ids, all_rows;
  std::vector<std::int32_t> inverse;
  std::vector<float> arrived, own_sums;

  std::size_t bytes() const;
};

// The rows of one step that the update before it will change: fetched again after that update.
struct Refresh {
  std::vector<std::int64_t> give;       // [G], rows given again to each rank
  std::vector<std::int32_t> requests;   // positions among the route's requests
  std::vector<std::int64_t> take;       // [G]
  std::vector<std::int32_t> positions;  // places among the ids
  std::vector<std::int32_t> sending_positions;
};

}  // namespace turbogr::embedding
