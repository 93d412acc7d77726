// From a Config and a store to what the ranking task is made of: features, tables, tasks, samples.
// What does not fit together is said here and in feature_setup.h, before anything is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "turbogr/data/samples/sample_loader.h"
#include "turbogr/data/store.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/model/feature_rows.h"
#include "turbogr/model/ranking_options.h"
#include "turbogr/run/config.h"
#include "turbogr/run/feature_setup.h"
#include "turbogr/train/ranking_train_options.h"

namespace turbogr::run {

struct RankingSetup {
  data::SampleLayout layout;
  model::RankingFeatures features;
  std::vector<std::string> table_names;
  std::vector<std::int64_t> named_rows;  // of each table in the config, before embedding.cut
  std::vector<embedding::TableOptions> tables;
  std::vector<std::uint8_t> regression;  // [K]
  std::vector<double> task_weights;      // [K]
};

// Throws on features that the store does not have, tables that do not fit them, and tasks without
// labels.
RankingSetup ranking_setup(const Config& config, const data::Store& store);

// What a config says without a store: features, of which each reads one row, in tables that name
// their rows; tasks and actions by number.
RankingSetup ranking_shape(const Config& config);

// most_targets: of the largest sample.
model::RankingOptions ranking_options(const Config& config, const RankingSetup& setup,
                                      std::int64_t most_targets);
// What memory is planned for: the largest batch.
struct RankingBounds {
  std::int64_t samples = 0, tokens = 0, targets = 0;
  std::int64_t most_tokens = 0, most_targets = 0;  // of one sample

  void include(const data::SampleLoader& loader);
  // Of the largest of `parts` that such a batch is computed in.
  RankingBounds part(std::int64_t parts) const;
};
// total_steps: where a decaying rate ends. On one rank.
train::RankingTrainOptions ranking_train_options(const Config& config, const RankingSetup& setup,
                                                 const RankingBounds& bounds,
                                                 std::int64_t total_steps = 0);

}  // namespace turbogr::run
