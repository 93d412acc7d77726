// The batches of consecutive steps for all ranks: made by the loader's planner and balancer, with
// the ids that each rank's share touches, found as a step finds them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/plan/histories.h"
#include "turbogr/run/config.h"

namespace turbogr::plan {

// One step of all ranks.
struct StepBatch {
  std::vector<std::int64_t> bounds;     // [ranks + 1], of lengths
  std::vector<std::int64_t> lengths;    // tokens of each sequence, rank by rank
  std::vector<std::int64_t> id_bounds;  // [ranks + 1], of ids
  std::vector<std::uint32_t> ids;       // distinct ones of each rank, ascending; rows of features
                                        // come after the items, table by table
  std::vector<std::int64_t>
      positives;  // [ranks], distinct, where ranks tell each other; else empty
  std::vector<std::int64_t> feature_reads;  // [ranks], repeats counted
  double plan_seconds = 0;                  // to share the step out

  int ranks() const { return static_cast<int>(bounds.size()) - 1; }
  std::span<const std::int64_t> lengths_of(int rank) const;
  std::span<const std::uint32_t> ids_of(int rank) const;
  std::int64_t feature_reads_of(int rank) const {
    return feature_reads.empty() ? 0 : feature_reads[static_cast<std::size_t>(rank)];
  }
};

struct DrawnSteps {
  std::vector<StepBatch> steps;
  double id_seconds = 0;        // of one thread, to find the distinct ids of all ranks
  std::int64_t ids_marked = 0;  // in that time
};

// How often each item is a target, for samplers that go by it: of all windows of a store, of
// made-up histories as many as have `most` targets, evenly apart. [num_items]
std::vector<std::int64_t> target_counts(const Context& ctx, const Histories& histories,
                                        std::int64_t most = 20'000'000);

// So many steps of `ranks` ranks, from the first of an epoch on. A step that would end the epoch is
// left out: throws when there is none before.
DrawnSteps draw_steps(const Context& ctx, const run::Config& config, const Histories& histories,
                      int ranks, int steps);

}  // namespace turbogr::plan
