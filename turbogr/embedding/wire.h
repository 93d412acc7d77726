// Rows in the format they travel in, or are kept in by a checkpoint: f32, bf16 or f16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/dtype.h"

namespace turbogr::embedding {

template <class T>  // float, bf16 or f16
void to_wire(DType wire, const T* row, std::int64_t width, std::byte* to);
template <class T>
void from_wire(DType wire, const std::byte* from, std::int64_t width, T* row);

}  // namespace turbogr::embedding
