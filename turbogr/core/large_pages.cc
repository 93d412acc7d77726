#include "turbogr/core/large_pages.h"

#include <sys/mman.h>

#include <cstdlib>
#include <memory>

namespace turbogr {
namespace {

constexpr std::size_t kLargePage = std::size_t{2} << 20;

}  // namespace

void use_large_pages(void* data, std::size_t bytes) {
  std::size_t left = bytes;
  if (std::align(kLargePage, kLargePage, data, left) == nullptr) return;  // less than one of them
  ::madvise(data, left / kLargePage * kLargePage, MADV_HUGEPAGE);
}

std::byte* allocate_host_bytes(std::size_t bytes) {
  // Aligned no more than that: a buffer on large pages of its own would take one more.
  auto* data = static_cast<std::byte*>(std::aligned_alloc(64, bytes));
  if (bytes >= 4 * kLargePage && data != nullptr) use_large_pages(data, bytes);
  return data;
}

}  // namespace turbogr
