#include "turbogr/ops/dense/sum_cuda.cuh"
#include "turbogr/ops/loss/task_loss_kernels.h"

namespace turbogr::ops::kernels {
namespace {

constexpr std::int64_t kPiece = 4 * kSumThreads;  // targets of a block

// A block has a piece of the targets of one task; parts [tasks, pieces].
template <class T>
__global__ void __launch_bounds__(kSumThreads)
    task_loss_kernel(Rows<const T> logits, Rows<const float> labels, Rows<const float> weights,
                     TaskLossOptions options, Rows<T> dlogits, double* parts) {
  const std::int64_t k = blockIdx.y;
  const bool regression = options.regression.data != nullptr && options.regression.data[k] != 0;
  const double factor = task_factor(options, k);
  const std::int64_t begin = std::int64_t{blockIdx.x} * kPiece;
  const std::int64_t end = min(begin + kPiece, logits.rows);
  double sum = 0;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kSumThreads) {
    const auto weight = static_cast<double>(weights(i, k));
    if (weight == 0) {
      dlogits(i, k) = convert<T>(Accum<T>(0));
      continue;
    }
    const auto z = static_cast<double>(convert<Accum<T>>(logits(i, k)));
    const TaskError error = task_error(z, static_cast<double>(labels(i, k)), regression);
    sum += weight * error.value;
    dlogits(i, k) = convert<T>(factor * weight * error.slope);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) parts[k * gridDim.x + blockIdx.x] = sum;
}

// A block a task.
__global__ void __launch_bounds__(kSumThreads)
    task_sums_kernel(TaskLossOptions options, const double* parts, std::int64_t pieces,
                     double* losses) {
  const std::int64_t k = blockIdx.x;
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < pieces; i += kSumThreads) sum += parts[k * pieces + i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) losses[k] = task_factor(options, k) * sum;
}

}  // namespace

template <class T>
void task_loss(Cuda cuda, Rows<const T> logits, Rows<const float> labels, Rows<const float> weights,
               const TaskLossOptions& options, View<double, 1> losses, Rows<T> dlogits) {
  if (logits.cols == 0) return;
  cudaStream_t stream = cuda::stream_of(cuda.stream);
  const std::int64_t pieces = cuda::divide_up(logits.rows, kPiece);
  const auto tasks = static_cast<unsigned>(logits.cols);
  WorkspaceScope scope(cuda.workspace);
  double* const parts = scope.take<double>(pieces * logits.cols).data;
  if (pieces > 0) {
    task_loss_kernel<T><<<dim3(static_cast<unsigned>(pieces), tasks), kSumThreads, 0, stream>>>(
        logits, labels, weights, options, dlogits, parts);
  }
  task_sums_kernel<<<tasks, kSumThreads, 0, stream>>>(options, parts, pieces, losses.data);
  cuda::check_launch("task_loss");
}

std::size_t task_loss_workspace_bytes(Cuda, std::int64_t targets, std::int64_t tasks) {
  return workspace_bytes_of<double>(cuda::divide_up(targets, kPiece) * tasks);
}

#define TGR_INSTANTIATE(T)                                                              \
  template void task_loss<T>(Cuda, Rows<const T>, Rows<const float>, Rows<const float>, \
                             const TaskLossOptions&, View<double, 1>, Rows<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
