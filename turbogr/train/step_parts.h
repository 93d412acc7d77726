// What the steps of both tasks do alike (step.h, ranking_step.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/touched_rows.h"
#include "turbogr/model/feature_rows.h"
#include "turbogr/ops/rows/update.h"
#include "turbogr/optim/schedule.h"
#include "turbogr/train/dense_reducer.h"
#include "turbogr/train/flight.h"
#include "turbogr/train/step_options.h"

namespace turbogr::train {

// All ranks, for work on `stream`, over its device's memory. Collective.
std::unique_ptr<dist::Communicator> device_ranks(const Context& stream, dist::Communicator& world,
                                                 const RankOptions& ranks, const char* name);

// The ids of each table that a step's features read.
void touch_features(const Context& host, const model::FeatureRows& features,
                    std::span<embedding::TouchedRows> touched);

// Sums dense gradients over ranks, and with them the squares of all tables and so many losses.
// Where the gradients of rows return late, this rank's own stand for them: a step is not finite
// when one of them is not.
void sum_step(const Context& ctx, DenseReducer& dense, dist::Communicator& ranks, Flight& step,
              Rows<const float> row_gradient, std::int64_t losses);

// Of step `step`, from 0.
AdamWSettings settings_at(const AdamWSettings& given, const optim::Schedule& schedule,
                          std::int64_t step);

}  // namespace turbogr::train
