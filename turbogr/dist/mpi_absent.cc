// Stands for mpi_backend.cc in a build without MPI.
#include "turbogr/core/check.h"
#include "turbogr/dist/communicator.h"

namespace turbogr::dist {

bool built_with_mpi() { return false; }

std::string mpi_version() { return "not in this build"; }

void run_mpi(const std::function<void(Communicator&)>&, const WaitOptions&) {
  detail::throw_error(
      "this build has no MPI and was started as one of several ranks; install libopenmpi-dev and "
      "build again, or start the program without mpirun");
}

}  // namespace turbogr::dist
