// What schedules.h knows of a step on its way, whatever the task.
#pragma once

#include <cstdint>
#include <memory>

#include "turbogr/core/context.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/train/step_numbers.h"

namespace turbogr::train {

struct Flight {
  std::int64_t step = 0;   // from 0
  bool stop = false;       // a wish to end: this rank's, then of any rank
  bool rows_late = false;  // gradients of rows return after the dense update
  bool done = false;       // every stage is queued
  std::unique_ptr<embedding::RowRequest> request;
  StepNumbers numbers;

  Flight(const Context& ctx, std::int64_t losses, std::int64_t tables)
      : numbers(ctx, losses, tables) {}
};

}  // namespace turbogr::train
