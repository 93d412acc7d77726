// The ranking that needs no model: items by how often they are trained on, the same list for
// everybody. What a model must beat to be worth its training.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/store.h"
#include "turbogr/eval/evaluate.h"
#include "turbogr/run/config.h"

namespace turbogr::run {

// How often each item is a target in an epoch of training.
std::vector<float> item_popularity(const Config& config, const data::Store& store);

// A warning when the model ranks worse than popularity by `metric` (or, where an evaluation has no
// such figure, by the first it has); else empty.
std::string below_popularity(std::string_view split, const eval::RankingMetrics& model,
                             const eval::RankingMetrics& popularity, const std::string& metric);

}  // namespace turbogr::run
