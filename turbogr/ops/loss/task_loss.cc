#include "turbogr/ops/loss/task_loss.h"

#include "turbogr/ops/checks.h"
#include "turbogr/ops/loss/task_loss_kernels.h"

namespace turbogr::ops {

void weight_sums(const Context& ctx, Rows<const float> weights, View<double, 1> sums) {
  const char* op = "weight_sums";
  check_rows(op, "weights", weights, weights.rows, weights.cols);
  check_vector(op, "sums", sums, weights.cols);
  on_cpu(ctx, op, [&](Cpu cpu) { kernels::weight_sums(cpu, weights, sums); });
}

template <class T>
void task_loss(const Context& ctx, Rows<const T> logits, Rows<const float> labels,
               Rows<const float> weights, const TaskLossOptions& options, View<double, 1> losses,
               Rows<T> dlogits) {
  const char* op = "task_loss";
  check_rows(op, "logits", logits, logits.rows, logits.cols);
  check_rows(op, "labels", labels, logits.rows, logits.cols);
  check_rows(op, "weights", weights, logits.rows, logits.cols);
  check_rows(op, "dlogits", dlogits, logits.rows, logits.cols);
  check_vector(op, "weight_sums", options.weight_sums, logits.cols);
  check_vector(op, "losses", losses, logits.cols);
  if (options.regression.data != nullptr) {
    check_vector(op, "regression", options.regression, logits.cols);
  }
  const SectionScope section = section_scope(ctx, Section::kLoss);
  on_device(ctx, [&](auto device) {
    kernels::task_loss<T>(device, logits, labels, weights, options, losses, dlogits);
  });
}

std::size_t task_loss_workspace_bytes(const Context& ctx, std::int64_t targets,
                                      std::int64_t tasks) {
  if constexpr (kWithCuda) {
    if (ctx.device() == Device::kCuda) {
      return kernels::task_loss_workspace_bytes(Cuda{ctx.stream(), ctx.workspace()}, targets,
                                                tasks);
    }
  }
  return 0;
}

#define TGR_INSTANTIATE(T)                                                                        \
  template void task_loss<T>(const Context&, Rows<const T>, Rows<const float>, Rows<const float>, \
                             const TaskLossOptions&, View<double, 1>, Rows<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
