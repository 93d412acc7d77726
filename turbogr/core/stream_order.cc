#include "turbogr/core/stream_order.h"

#if TGR_WITH_CUDA
#include <cuda_runtime.h>

#include "turbogr/core/cuda_call.h"
#endif

namespace turbogr {

#if TGR_WITH_CUDA

StreamOrder::StreamOrder() {
  cudaEvent_t event;
  TGR_CUDA_CALL(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  event_ = std::shared_ptr<void>(
      event, [](void* made) { cudaEventDestroy(static_cast<cudaEvent_t>(made)); });
}

void StreamOrder::put_after(void* later, void* earlier) {
  auto* event = static_cast<cudaEvent_t>(event_.get());
  TGR_CUDA_CALL(cudaEventRecord(event, static_cast<cudaStream_t>(earlier)));
  TGR_CUDA_CALL(cudaStreamWaitEvent(static_cast<cudaStream_t>(later), event, 0));
}

#else

StreamOrder::StreamOrder() = default;
void StreamOrder::put_after(void*, void*) {}

#endif

}  // namespace turbogr
