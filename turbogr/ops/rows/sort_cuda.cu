#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include "turbogr/cuda/columns.cuh"
#include "turbogr/ops/rows/sort_cuda.h"

namespace turbogr::ops {

template <class Key>
void sort_pairs(void* stream, const Key* keys, Key* sorted_keys, const std::uint32_t* values,
                std::uint32_t* sorted_values, std::int64_t count, int bits, void* scratch,
                std::size_t scratch_bytes) {
  TGR_CUDA_CALL(cub::DeviceRadixSort::SortPairs(scratch, scratch_bytes, keys, sorted_keys, values,
                                                sorted_values, static_cast<std::int32_t>(count), 0,
                                                bits, cuda::stream_of(stream)));
}

template <class Key>
std::size_t sort_pairs_bytes(std::int64_t count) {
  std::size_t bytes = 0;
  const Key* keys = nullptr;
  const std::uint32_t* values = nullptr;
  TGR_CUDA_CALL(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, static_cast<Key*>(nullptr),
                                                values, static_cast<std::uint32_t*>(nullptr),
                                                static_cast<std::int32_t>(count)));
  return bytes;
}

void running_sum(void* stream, std::int32_t* values, std::int64_t count, void* scratch,
                 std::size_t scratch_bytes) {
  TGR_CUDA_CALL(cub::DeviceScan::InclusiveSum(scratch, scratch_bytes, values, values,
                                              static_cast<std::int32_t>(count),
                                              cuda::stream_of(stream)));
}

std::size_t running_sum_bytes(std::int64_t count) {
  std::size_t bytes = 0;
  std::int32_t* values = nullptr;
  TGR_CUDA_CALL(cub::DeviceScan::InclusiveSum(nullptr, bytes, values, values,
                                              static_cast<std::int32_t>(count)));
  return bytes;
}

#define TGR_INSTANTIATE(Key)                                                                   \
  template void sort_pairs<Key>(void*, const Key*, Key*, const std::uint32_t*, std::uint32_t*, \
                                std::int64_t, int, void*, std::size_t);                        \
  template std::size_t sort_pairs_bytes<Key>(std::int64_t);
TGR_INSTANTIATE(std::uint32_t)
TGR_INSTANTIATE(std::uint64_t)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
