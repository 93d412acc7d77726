#include "turbogr/run/calibration.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

namespace turbogr::run {
namespace {

using nlohmann::ordered_json;

bool is_bin(const ordered_json& bin) {
  return bin.is_object() && bin.contains("targets") && bin["targets"].is_number_integer() &&
         bin.contains("predicted") && bin["predicted"].is_number() && bin.contains("observed") &&
         bin["observed"].is_number();
}

}  // namespace

ordered_json calibration_json(const std::vector<TaskCalibration>& tasks) {
  ordered_json all = ordered_json::object();
  for (const TaskCalibration& task : tasks) {
    ordered_json bins = ordered_json::array();
    for (const eval::CalibrationBin& bin : task.bins) {
      bins.push_back(
          {{"targets", bin.targets}, {"predicted", bin.predicted}, {"observed", bin.observed}});
    }
    all[task.task] = std::move(bins);
  }
  return all;
}

std::vector<TaskCalibration> read_calibration(const ordered_json& given) {
  std::vector<TaskCalibration> tasks;
  if (!given.is_object()) return tasks;
  for (const auto& [name, bins] : given.items()) {
    TaskCalibration task = {name, {}};
    if (!bins.is_array()) continue;
    for (const ordered_json& bin : bins) {
      if (!is_bin(bin)) continue;
      task.bins.push_back({bin["targets"].get<std::int64_t>(), bin["predicted"].get<double>(),
                           bin["observed"].get<double>()});
    }
    if (!task.bins.empty()) tasks.push_back(std::move(task));
  }
  return tasks;
}

}  // namespace turbogr::run
