// Where the rows of a step move for a layout of ranks: how many ids each rank asks of each owner,
// and how many distinct rows each owner has for them. embedding/route.cc finds the same by
// exchanging ids; here one process has them all.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/dist/topology.h"
#include "turbogr/embedding/sharding.h"
#include "turbogr/plan/step_batches.h"

namespace turbogr::plan {

// Counts of ids, for all of a step's and for those that a neighbouring step touches, too.
struct RouteCounts {
  int group_size = 1;
  std::vector<std::int32_t> asked;    // [ranks, G], ids of a rank by the place of their owner
  std::vector<std::int64_t> owned;    // [ranks], distinct rows asked of a rank by its group
  std::vector<std::int64_t> touched;  // [G], of each place over all groups
  std::vector<std::int32_t> merged;   // two hops: [machines, G], distinct ids of a machine's ranks

  std::span<const std::int32_t> asked_by(int rank) const {
    const auto size = static_cast<std::size_t>(group_size);
    return std::span(asked).subspan(static_cast<std::size_t>(rank) * size, size);
  }
  // Machines are counted group by group.
  std::span<const std::int32_t> merged_by(std::size_t machine) const {
    const auto size = static_cast<std::size_t>(group_size);
    return std::span(merged).subspan(machine * size, size);
  }
};

struct StepRoutes {
  RouteCounts all;
  RouteCounts next_reads;  // of them, rows that the step after touches on some rank
  RouteCounts changed;     // of them, rows that the step before touches on some rank
};

struct LayoutOptions {
  dist::Topology topology;
  embedding::Placement placement = embedding::Placement::kRoundRobin;
  std::int64_t rows = 0;                   // of the item table
  std::vector<std::int64_t> feature_rows;  // of the tables numbered after it
  // Two hops: so many places of a group, one after the other, are a machine's, and its ranks' ids
  // are merged. 0: one hop.
  int machine_ranks = 0;
};

// Who owns a row, by its number among all tables.
class TableShards {
 public:
  explicit TableShards(const LayoutOptions& layout);
  std::size_t place_of(std::uint32_t row) const {
    std::size_t table = 0;
    while (row >= first_rows_[table + 1]) ++table;
    return static_cast<std::size_t>(shards_[table].shard_of(row - first_rows_[table]));
  }
  std::int64_t num_rows() const { return first_rows_.back(); }

 private:
  std::vector<std::int64_t> first_rows_;  // [tables + 1]
  std::vector<embedding::Sharding> shards_;
};

// The ranks of every group, by place.
std::vector<std::vector<int>> members_of(const dist::Topology& topology);

// One for every step.
std::vector<StepRoutes> route_steps(const Context& ctx, const LayoutOptions& layout,
                                    std::span<const StepBatch> steps);

}  // namespace turbogr::plan
