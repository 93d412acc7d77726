// The figures of the steps since a run's last line of them.
//
//   StepWindow window(task.times());
//   window.add(result, flops);
//   window.seconds += ...;
//   log(window.loss(), window.tokens / window.seconds);
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "turbogr/model/flops.h"
#include "turbogr/train/stage_clock.h"
#include "turbogr/train/step_options.h"

namespace turbogr::run {

struct StepWindow {
  double loss_sum = 0;  // over tokens that predict
  std::int64_t predicting = 0;
  std::int64_t tokens = 0;
  double seconds = 0;
  model::Flops flops;
  train::StageTimes began;  // the trainer's clocks at its first step

  StepWindow() = default;
  explicit StepWindow(const train::StageTimes& now) : began(now) {}

  void add(const train::StepResult& result, const model::Flops& step_flops);
  double loss() const;  // mean

  // The first line after a resume counts the steps before it, too. `now`: the trainer's clocks;
  // those of a new trainer begin at zero. Throws json::exception where keys are missing or of other
  // types.
  nlohmann::json to_json(const train::StageTimes& now) const;
  static StepWindow from_json(const nlohmann::json& state);
};

}  // namespace turbogr::run
