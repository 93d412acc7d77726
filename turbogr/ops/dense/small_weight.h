// Which f32 weights have products of our own on a CPU (linear_small.h), and what those keep.
#pragma once

#include <cstddef>
#include <cstdint>

namespace turbogr::ops {

bool is_small_weight(std::int64_t inputs, std::int64_t outputs);

// Of one of W's two layouts, padded to whole vectors.
std::size_t small_weight_bytes(std::int64_t rows, std::int64_t cols);

}  // namespace turbogr::ops
