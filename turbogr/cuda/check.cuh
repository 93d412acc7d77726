// A failed CUDA call becomes a turbogr::Error that names the call and carries the driver's words.
#pragma once

#include <cuda_runtime.h>

#include "turbogr/core/check.h"

namespace turbogr::cuda {

inline void check(cudaError_t status, const char* call) {
  TGR_CHECK(status == cudaSuccess, call, ": ", cudaGetErrorString(status));
}

}  // namespace turbogr::cuda
