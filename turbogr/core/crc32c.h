// CRC-32C (Castagnoli), the checksum of checkpoints and of TensorBoard's records.
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/thread_pool.h"

namespace turbogr {

// The checksum of what `crc` covers followed by these bytes; 0 covers nothing.
std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t bytes);

// The checksum of two stretches end to end, from those of each and the length of the second.
std::uint32_t crc32c_joined(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes);

// By all of the pool's threads.
std::uint32_t crc32c(ThreadPool& pool, const void* data, std::size_t bytes);

// The same sums without the processor's own instruction; tests compare the two.
std::uint32_t crc32c_portable(std::uint32_t crc, const void* data, std::size_t bytes);

}  // namespace turbogr
