// Calls into the CUDA runtime from host code. For sources of CUDA builds only.
#pragma once

#include "turbogr/core/check.h"

namespace turbogr::detail {

[[noreturn]] void throw_cuda_error(int error, const char* what);

}  // namespace turbogr::detail

// Throws turbogr::Error with CUDA's own words unless the call succeeds.
#define TGR_CUDA_CALL(call)                                                    \
  do {                                                                         \
    const int tgr_error = static_cast<int>(call);                              \
    if (tgr_error != 0) ::turbogr::detail::throw_cuda_error(tgr_error, #call); \
  } while (false)
