// From a Config and a store to the features of the retrieval task (eval/retrieval_features.h). What
// does not fit together is said here, before anything is allocated.
#pragma once

#include <cstdint>
#include <functional>

#include "turbogr/data/samples/sample_features.h"
#include "turbogr/data/store.h"
#include "turbogr/eval/retrieval_features.h"
#include "turbogr/run/config.h"
#include "turbogr/train/step_options.h"

namespace turbogr::run {

// None where the config names none. Throws on features that the store does not have, tables that
// do not fit them, and what does not go with the rest of the config.
eval::RetrievalFeatures retrieval_features(const Config& config, const data::Store& store);
// The same where something else says what a feature reads.
using FeatureReader = std::function<data::SampleFeature(const FeatureConfig&)>;
eval::RetrievalFeatures retrieval_features(const Config& config, const FeatureReader& reads_of);

// Gives a step's options their features, for batches of up to so many sequences.
void add_features(eval::RetrievalFeatures features, std::int64_t most_sequences,
                  train::RetrievalOptions& options);

}  // namespace turbogr::run
