// int32 numbers of the caller as the int64 ones that operators take, on the device.
#pragma once

#include <cstdint>

#include "turbogr/core/context.h"

namespace turbogr::c_api {

void widen(Cuda cuda, const std::int32_t* from, std::int64_t count, std::int64_t* to);
// Of each of `count` sequences.
void lengths_of(Cuda cuda, const std::int64_t* offsets, std::int64_t count, std::int64_t* lengths);

}  // namespace turbogr::c_api
