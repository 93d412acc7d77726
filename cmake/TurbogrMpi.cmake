# MPI, when asked for or there: sets TGR_MPI_LIBRARIES, and TGR_MPI_UNUSED to the one of two sources that
# does not apply. A program without it says so when mpirun starts it.
set(TGR_MPI_LIBRARIES "")
set(TGR_MPI_UNUSED mpi_backend.cc)
if(NOT TGR_MPI STREQUAL "OFF")
  if(TGR_MPI STREQUAL "AUTO")
    find_package(MPI QUIET COMPONENTS CXX)
  else()
    find_package(MPI REQUIRED COMPONENTS CXX)
  endif()
  if(MPI_CXX_FOUND)
    # The C interface alone: the C++ one was removed from the standard.
    add_library(turbogr_mpi INTERFACE)
    target_link_libraries(turbogr_mpi INTERFACE MPI::MPI_CXX)
    target_compile_definitions(turbogr_mpi INTERFACE OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
    set(TGR_MPI_LIBRARIES turbogr_mpi)
    set(TGR_MPI_UNUSED mpi_absent.cc)
  endif()
endif()
