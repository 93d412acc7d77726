#include "turbogr/core/dtype.h"
#include "turbogr/ops/loss/task_loss_kernels.h"

namespace turbogr::ops::kernels {

void weight_sums(Cpu cpu, Rows<const float> weights, View<double, 1> sums) {
  parallel_for(cpu.pool, weights.cols, [&](std::int64_t k, int) {
    double sum = 0;
    for (std::int64_t i = 0; i < weights.rows; ++i) sum += static_cast<double>(weights(i, k));
    sums(k) = sum;
  });
}

template <class T>
void task_loss(Cpu cpu, Rows<const T> logits, Rows<const float> labels, Rows<const float> weights,
               const TaskLossOptions& options, View<double, 1> losses, Rows<T> dlogits) {
  parallel_for(cpu.pool, logits.cols, [&](std::int64_t k, int) {
    const bool regression = options.regression.data != nullptr && options.regression(k) != 0;
    const double factor = task_factor(options, k);
    double sum = 0;
    for (std::int64_t i = 0; i < logits.rows; ++i) {
      const auto weight = static_cast<double>(weights(i, k));
      if (weight == 0) {
        dlogits(i, k) = convert<T>(Accum<T>(0));
        continue;
      }
      const auto z = static_cast<double>(convert<Accum<T>>(logits(i, k)));
      const auto label = static_cast<double>(labels(i, k));
      const TaskError error = task_error(z, label, regression);
      sum += weight * error.value;
      dlogits(i, k) = convert<T>(factor * weight * error.slope);
    }
    losses(k) = factor * sum;
  });
}

#define TGR_INSTANTIATE(T)                                                             \
  template void task_loss<T>(Cpu, Rows<const T>, Rows<const float>, Rows<const float>, \
                             const TaskLossOptions&, View<double, 1>, Rows<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
