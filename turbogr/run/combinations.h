// What of a config goes together: where rows are and in which format, who shares them, and when the
// stages of a step run. A rule is a row of the table in combinations.cc and nowhere else.
#pragma once

#include "turbogr/run/config.h"
#include "turbogr/run/idle_keys.h"

namespace turbogr::run {

// Throws on the first rule that is broken. A config alone is asked when it is read, for one rank;
// once more when the ranks are known.
void check_combinations(const Config& config, const RunLayout& layout = {});

}  // namespace turbogr::run
