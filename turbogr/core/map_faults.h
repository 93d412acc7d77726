// A file that is cut short while it is mapped ends the process by SIGBUS at the next look at it,
// and no exception can be thrown there: at least it is said which file that was.
#pragma once

namespace turbogr {

// From here on such a fault ends the process with status 1 and a line on standard error that names
// the file. For programs: a library leaves its host's signals alone.
void explain_map_faults();

}  // namespace turbogr
