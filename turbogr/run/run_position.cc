#include "turbogr/run/run_position.h"

#include <nlohmann/json.hpp>

#include "turbogr/core/json_number.h"

namespace turbogr::run {

using nlohmann::json;

void RunPosition::add_to(json& state, const train::StageTimes& now) const {
  state["epoch"] = epoch;
  state["bad_steps"] = bad_steps;
  state["skipped_steps"] = skipped_steps;
  state["early_stopping"] = early_stopping.state();
  state["window"] = window.to_json(now);
}

void RunPosition::restore(const json& state) {
  epoch = count_of(state.at("epoch"));
  bad_steps = count_of(state.value("bad_steps", json(0)));
  skipped_steps = count_of(state.value("skipped_steps", json(0)));
  early_stopping.restore(state.value("early_stopping", json::object()));
  if (state.contains("window")) window = StepWindow::from_json(state.at("window"));
}

}  // namespace turbogr::run
