#include "turbogr/run/early_stopping.h"

#include <nlohmann/json.hpp>

#include "turbogr/core/json_number.h"

namespace turbogr::run {

void EarlyStopping::add(double score) {
  if (!best_ || score > *best_) {
    best_ = score;
    since_best_ = 0;
  } else {
    ++since_best_;
  }
}

nlohmann::json EarlyStopping::state() const {
  nlohmann::json state = {{"since_best", since_best_}};
  if (best_) state["best"] = *best_;
  return state;
}

void EarlyStopping::restore(const nlohmann::json& state) {
  since_best_ = count_of(state.value("since_best", nlohmann::json(0)));
  best_.reset();
  if (state.contains("best")) best_ = state.at("best").get<double>();
}

}  // namespace turbogr::run
