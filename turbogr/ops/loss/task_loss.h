// The loss of a ranking model: for each task the weighted mean over targets of the binary cross
// entropy of a logit, or of the squared error of a number, summed over tasks. The mean is that of
// the global batch: a rank gives its part, divided by the weights of all ranks together.
//
//   weight_sums(ctx, weights, sums);        // then add the ranks' sums
//   task_loss<float>(ctx, logits, labels, weights, {.weight_sums = sums}, losses, dlogits);
//
// M targets, K tasks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

// sums(k) = the sum of weights(i, k) over i, in f64. On a CPU: ranks add theirs before the loss.
//   weights [M, K]    sums [K]
void weight_sums(const Context& ctx, Rows<const float> weights, View<double, 1> sums);

struct TaskLossOptions {
  double scale = 1;
  View<const double, 1> weight_sums;       // [K], of the global batch
  View<const std::uint8_t, 1> regression;  // [K]: 1 where the task predicts a number; empty: none
};

// losses(k) = scale * sum of weight * error / max(1, weight_sums(k)), summed in f64 in an order
// that depends on M alone, on a CPU the targets' own; and its gradient. Both are overwritten. A
// weight of 0 hides its label, whatever it is. Options' views are memory of the context's device,
// too.
//   logits, dlogits [M, K]    labels, weights [M, K]    losses [K]
template <class T>
void task_loss(const Context& ctx, Rows<const T> logits, Rows<const float> labels,
               Rows<const float> weights, const TaskLossOptions& options, View<double, 1> losses,
               Rows<T> dlogits);

// For up to M targets.
std::size_t task_loss_workspace_bytes(const Context& ctx, std::int64_t targets, std::int64_t tasks);

}  // namespace turbogr::ops
