// Rows in the format they travel in.
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/dtype.h"

namespace turbogr::embedding {

template <class T>
void to_wire(DType wire, const T* row, std::int64_t width, std::byte* to);
template <class T>
void from_wire(DType wire, const std::byte* from, std::int64_t width, T* row);

}  // namespace turbogr::embedding
