# MPI, when asked for or there: sets TGR_MPI_LIBRARIES, and TGR_OTHER_MPI to the one of two sources that
# does not apply. A program without it says so when mpirun starts it.
set(TGR_MPI_LIBRARIES "")
set(TGR_OTHER_MPI turbogr/dist/mpi_backend.cc)
# A program that brings its libraries along cannot bring an MPI.
if(NOT TGR_MPI STREQUAL "OFF" AND NOT (TGR_PORTABLE AND TGR_MPI STREQUAL "AUTO"))
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
    set(TGR_OTHER_MPI turbogr/dist/mpi_absent.cc)
  endif()
endif()
