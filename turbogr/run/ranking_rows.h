// Where the ranking task's tables are: on this device, in its host's memory, or spread over ranks.
#pragma once

#include <memory>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/run/config.h"
#include "turbogr/train/step_options.h"

namespace turbogr::run {

// The device's own, or pinned memory of its host that it reads over the link.
Device table_memory(const Config& config);

// All outlive it. Collective.
template <class T>  // float or bf16
std::unique_ptr<embedding::RowSource<T>> make_ranking_rows(
    const Context& ctx, dist::Communicator& world,
    const std::vector<embedding::TableOptions>& tables, Device memory,
    const train::RankOptions& ranks);

// The same, counted and not made.
template <class T>
std::unique_ptr<embedding::RowSource<T>> plan_ranking_rows(
    const std::vector<embedding::TableOptions>& tables, Device memory,
    const train::RankOptions& ranks);

}  // namespace turbogr::run
