// Where a run stands, beside its weights and its place in the data: what a checkpoint keeps of the
// loop around the steps.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "turbogr/run/early_stopping.h"
#include "turbogr/run/step_window.h"

namespace turbogr::run {

struct RunPosition {
  std::int64_t epoch = 0;          // ended
  std::int64_t bad_steps = 0;      // in a row whose loss or gradient was not finite
  std::int64_t skipped_steps = 0;  // in all
  EarlyStopping early_stopping;
  StepWindow window;

  explicit RunPosition(std::int64_t patience) : early_stopping(patience) {}

  // Keys are added to `state` and read from it. A state that an older program wrote may lack all
  // but the epoch; anything else that is missing or wrong throws json::exception.
  void add_to(nlohmann::json& state, const train::StageTimes& now) const;
  void restore(const nlohmann::json& state);
};

}  // namespace turbogr::run
