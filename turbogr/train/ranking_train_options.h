// What a training step of the ranking task is made of.
#pragma once

#include <cstdint>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/model/feature_rows.h"
#include "turbogr/model/ranking_inputs.h"
#include "turbogr/model/ranking_model.h"
#include "turbogr/ops/rows/update.h"
#include "turbogr/optim/schedule.h"
#include "turbogr/train/step_options.h"

namespace turbogr::train {

struct RankingTrainOptions {
  model::RankingOptions model;
  model::RankingMemory memory;    // of the model: a batch may have several times as much,
  model::RankingBatchSize batch;  // this much; zeros: the same
  model::RankingFeatures features;
  std::vector<embedding::TableOptions> tables;  // of the features, all as wide as the model reads
  Device table_memory = Device::kCpu;           // the device's, or pinned memory of its host
  AdamWSettings dense = {.beta1 = 0.95, .beta2 = 0.999};
  AdamWSettings table = {.epsilon_outside = true};
  optim::Schedule schedule = {.warmup_from_zero = true};  // of the rates of both
  double clip = 1;  // of the dense gradients' norm; 0: none. Tables' are never clipped
  double loss_scale = 0.2;
  std::vector<std::uint8_t> regression;  // [K], as in TaskLossOptions
  std::vector<double> task_weights;      // [K], factors on the tasks' losses; empty: 1 each
  // Attention is divided by what batch_norm_length says of this rank's batch, so that scores depend
  // on who shares it; else by the model's own number.
  bool norm_by_batch = false;
  RankOptions ranks;
  bool plan_only = false;  // the tables' memory is counted, not taken
  std::uint64_t seed = 1;
};

// `predicting` counts targets; the gradient's norm is that of the dense weights.
struct RankingResult : StepResult {
  std::int64_t out_of_range = 0;  // ids outside of their tables, which read row 0
};

}  // namespace turbogr::train
