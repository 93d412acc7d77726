// What a run's [negatives] section asks for.
#pragma once

#include "turbogr/run/config.h"
#include "turbogr/train/negative_options.h"

namespace turbogr::run {

train::NegativeOptions negative_options(const NegativesConfig& config);  // checked

}  // namespace turbogr::run
