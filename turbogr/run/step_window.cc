#include "turbogr/run/step_window.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "turbogr/core/json_number.h"

namespace turbogr::run {

using nlohmann::json;

namespace {

// A number that is not finite is null in JSON.
double number_from(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

}  // namespace

void StepWindow::add(const train::StepResult& result, const model::Flops& step_flops) {
  loss_sum += result.loss * static_cast<double>(result.predicting);
  predicting += result.predicting;
  tokens += result.tokens;
  flops.causal += step_flops.causal;
  flops.paper += step_flops.paper;
}

double StepWindow::loss() const {
  return loss_sum / static_cast<double>(std::max<std::int64_t>(predicting, 1));
}

json StepWindow::to_json(const train::StageTimes& now) const {
  const train::StageTimes since = now - began;
  return {{"loss_sum", loss_sum},
          {"predicting", predicting},
          {"tokens", tokens},
          {"seconds", seconds},
          {"flops", {flops.causal, flops.paper}},
          {"stages", {since.compute, since.dense_communication, since.sparse_communication}}};
}

StepWindow StepWindow::from_json(const json& state) {
  const json& stages = state.at("stages");
  const train::StageTimes since = {stages.at(0).get<double>(), stages.at(1).get<double>(),
                                   stages.at(2).get<double>()};
  StepWindow window(train::StageTimes{} - since);
  window.loss_sum = number_from(state.at("loss_sum"));
  window.predicting = count_of(state.at("predicting"));
  window.tokens = count_of(state.at("tokens"));
  window.seconds = state.at("seconds").get<double>();
  window.flops = {state.at("flops").at(0).get<double>(), state.at("flops").at(1).get<double>()};
  return window;
}

}  // namespace turbogr::run
