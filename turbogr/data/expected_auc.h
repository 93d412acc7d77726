// The AUC of one who knows the chance of every event: no model can do better on average.
#pragma once

#include <vector>

namespace turbogr::data {

// Each chance p counts as p of a positive and 1 - p of a negative; not a number without both.
double expected_auc(std::vector<double> chances);

}  // namespace turbogr::data
