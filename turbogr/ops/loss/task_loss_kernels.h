// What a device fills in for task_loss.h.
#pragma once

#include <cmath>

#include "turbogr/core/host_device.h"
#include "turbogr/ops/loss/task_loss.h"

namespace turbogr::ops::kernels {

struct TaskError {
  double value, slope;
};

// -y log s(z) - (1 - y) log(1 - s(z)), without the exponential of a large number; or (z - y)^2.
TGR_HD inline TaskError task_error(double z, double label, bool regression) {
  if (regression) return {(z - label) * (z - label), 2 * (z - label)};
  const double small = std::exp(-std::abs(z));
  const double sigmoid = z >= 0 ? 1 / (1 + small) : small / (1 + small);
  return {(z > 0 ? z : 0.0) - z * label + std::log1p(small), sigmoid - label};
}

// What every error of task k is multiplied by, besides its own weight.
TGR_HD inline double task_factor(const TaskLossOptions& options, std::int64_t k) {
  const double sum = options.weight_sums(k);
  return options.scale / (sum > 1 ? sum : 1.0);
}

void weight_sums(Cpu cpu, Rows<const float> weights, View<double, 1> sums);
template <class T>
void task_loss(Cpu cpu, Rows<const T> logits, Rows<const float> labels, Rows<const float> weights,
               const TaskLossOptions& options, View<double, 1> losses, Rows<T> dlogits);
template <class T>
void task_loss(Cuda cuda, Rows<const T> logits, Rows<const float> labels, Rows<const float> weights,
               const TaskLossOptions& options, View<double, 1> losses, Rows<T> dlogits);
std::size_t task_loss_workspace_bytes(Cuda cuda, std::int64_t targets, std::int64_t tasks);

}  // namespace turbogr::ops::kernels
