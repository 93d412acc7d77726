// Where tables are: on this device, in its host's memory, or spread over ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/train/step_options.h"

namespace turbogr::train {

// All that decides which kind of source tables get.
struct RowPlan {
  std::vector<embedding::TableOptions> tables;
  Device memory = Device::kCpu;  // the device's own, or pinned memory of its host
  RankOptions ranks;
  bool plan_only = false;   // counted, not made
  std::int64_t most = 0;    // rows of the first table that a step touches; 0: not told
  bool ahead = false;       // of a single table in the host's memory, they are brought ahead of it,
  std::int64_t copies = 0;  // and the device has copies of as many rows,
  std::span<const std::int64_t> counts;  // those of the items that occur most often
};

// `next` is the context of Lane::kNext. All outlive it. Collective.
template <class T>  // float or bf16
std::unique_ptr<embedding::RowSource<T>> make_rows(const Context& ctx, const Context& next,
                                                   dist::Communicator& world, const RowPlan& plan);

}  // namespace turbogr::train
