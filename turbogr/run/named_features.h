// The features and tasks of a run that names none, written into its config, so that the run
// remembers them. Ranking takes the ids of users and items and every feature of the store, and a
// task for each of its signals; retrieval the features of items, where model.features = "store".
#pragma once

#include "turbogr/data/store.h"
#include "turbogr/run/config.h"

namespace turbogr::run {

void name_features(Config& config, const data::Store& store);

}  // namespace turbogr::run
