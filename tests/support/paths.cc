#include "tests/support/paths.h"

namespace turbogr::test {

std::string source_dir() { return TGR_SOURCE_DIR; }
std::string build_dir() { return TGR_BUILD_DIR; }
std::string program() { return TGR_PROGRAM; }
std::string cmake_program() { return TGR_CMAKE; }
std::string mpi_ranks() { return TGR_MPI_RANKS; }

}  // namespace turbogr::test
