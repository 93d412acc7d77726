// Large pages below big buffers: rows picked by chance from a table of gigabytes otherwise wait for
// the address of nearly every one.
#pragma once

#include <cstddef>

namespace turbogr {

// Asks the system for large pages before a buffer is used. It may not have them.
void use_large_pages(void* data, std::size_t bytes);

// As std::aligned_alloc(64, bytes), freed by std::free; in large pages where there is room for
// several.
std::byte* allocate_host_bytes(std::size_t bytes);

}  // namespace turbogr
