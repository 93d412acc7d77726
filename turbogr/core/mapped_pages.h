// Pages of a mapped file count as the process's memory from the first touch on. What has been read
// and is not wanted again can be let go; a later touch brings it from the file again.
#pragma once

#include <cstddef>

namespace turbogr {

void forget_pages(const std::byte* begin, std::size_t bytes);  // of a read-only mapping

}  // namespace turbogr
