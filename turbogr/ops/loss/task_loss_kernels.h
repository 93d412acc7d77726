// What a device fills in for task_loss.h.
#pragma once

#include "turbogr/ops/loss/task_loss.h"

namespace turbogr::ops::kernels {

void weight_sums(Cpu cpu, Rows<const float> weights, View<double, 1> sums);
template <class T>
void task_loss(Cpu cpu, Rows<const T> logits, Rows<const float> labels, Rows<const float> weights,
               const TaskLossOptions& options, View<double, 1> losses, Rows<T> dlogits);

}  // namespace turbogr::ops::kernels
