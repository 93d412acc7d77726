#include "turbogr/core/mapped_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace turbogr {

void forget_pages(const std::byte* begin, std::size_t bytes) {
  if (bytes == 0) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t before = reinterpret_cast<std::uintptr_t>(begin) % page;
  // Where the system does not know how, the pages stay.
  ::madvise(const_cast<std::byte*>(begin) - before, bytes + before, MADV_DONTNEED);
}

}  // namespace turbogr
