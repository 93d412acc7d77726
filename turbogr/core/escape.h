// Text from a file, fit for a terminal or a line of its own. Ids are whatever bytes a log had:
// printed as they are they could clear a screen, and a newline in one would make two lines of it.
#pragma once

#include <string>
#include <string_view>

namespace turbogr {

// Control characters and bytes that are no UTF-8 as \n, \r, \t or \xNN, a backslash as \\; the rest
// as it is. Nothing is lost: undoing these gives the text back. Bytes in `but` stay.
std::string escaped(std::string_view text, std::string_view but = {});

}  // namespace turbogr
