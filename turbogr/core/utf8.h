// Whether bytes are text as configs and JSON hold it.
#pragma once

#include <cstddef>
#include <string_view>

namespace turbogr {

// Bytes of the UTF-8 character at the front of the text; 0 when there is none.
std::size_t utf8_length(std::string_view text);

bool is_utf8(std::string_view text);

}  // namespace turbogr
