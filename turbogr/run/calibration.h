// How a task's scores match what came true, as metrics.jsonl and `eval --json` write it:
//
//   "calibration": {"click": [{"targets": 100, "predicted": 0.12, "observed": 0.13}, ...]}
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "turbogr/eval/click_metrics.h"

namespace turbogr::run {

inline constexpr const char* kCalibration = "calibration";

struct TaskCalibration {
  std::string task;
  std::vector<eval::CalibrationBin> bins;
};

nlohmann::ordered_json calibration_json(const std::vector<TaskCalibration>& tasks);
// What is none is left out: a page of figures must not fail over a line of a log.
std::vector<TaskCalibration> read_calibration(const nlohmann::ordered_json& given);

}  // namespace turbogr::run
