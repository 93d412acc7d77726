// What a program says where nothing can be thrown any more: a file that is cut short while it is
// mapped ends it by SIGBUS at the next look, and memory that runs out inside a library's move or
// destructor by std::terminate.
#pragma once

namespace turbogr {

// From here on such an end has status 1 and a line on standard error that says which file it was,
// or that memory has run out. For programs: a library leaves its host's handlers alone.
void leave_last_words();

}  // namespace turbogr
