// Sorting and running sums on a GPU, by CUB; apart, because CUB takes long to compile. For the CUDA
// kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace turbogr::ops {

// Stable, ascending by the lowest `bits` bits of the keys. Key: uint32 or uint64. The inputs stay
// as they were. `scratch` has at least sort_pairs_bytes.
template <class Key>
void sort_pairs(void* stream, const Key* keys, Key* sorted_keys, const std::uint32_t* values,
                std::uint32_t* sorted_values, std::int64_t count, int bits, void* scratch,
                std::size_t scratch_bytes);
template <class Key>
std::size_t sort_pairs_bytes(std::int64_t count);

// values(i) = the sum of values(0) to values(i), in place.
void running_sum(void* stream, std::int32_t* values, std::int64_t count, void* scratch,
                 std::size_t scratch_bytes);
std::size_t running_sum_bytes(std::int64_t count);

}  // namespace turbogr::ops
