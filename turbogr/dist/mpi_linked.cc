// The MPI this program was linked with.
#include "turbogr/dist/mpi_calls.h"

namespace turbogr::dist {

const MpiCalls& mpi_calls() { return *turbogr_mpi_calls(); }

}  // namespace turbogr::dist
