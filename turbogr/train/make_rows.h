// Where tables are: on this device, in its host's memory, or spread over ranks.
#pragma once

#include <memory>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/train/step_options.h"

namespace turbogr::train {

// `memory` is the device's own, or pinned memory of its host that it reads over the link; `next`
// the context of Lane::kNext. All outlive it. Collective.
template <class T>  // float or bf16
std::unique_ptr<embedding::RowSource<T>> make_rows(
    const Context& ctx, const Context& next, dist::Communicator& world,
    const std::vector<embedding::TableOptions>& tables, Device memory, const RankOptions& ranks);

// What their memory is, of this rank.
PlannedBytes table_bytes(const std::vector<embedding::TableOptions>& tables, Device memory,
                         const RankOptions& ranks);

}  // namespace turbogr::train
