# MPI, when asked for or there. The program never links it: libturbogr_mpi.so, beside the program, does, and is
# opened when ranks are asked for, so that the program starts where no MPI is. Sets TGR_OTHER_MPI to the
# sources that do not belong into the program.
set(TGR_OTHER_MPI turbogr/dist/mpi_calls.cc turbogr/dist/mpi_backend.cc turbogr/dist/mpi_loaded.cc)
if(NOT TGR_MPI STREQUAL "OFF")
  if(TGR_MPI STREQUAL "AUTO")
    find_package(MPI QUIET COMPONENTS CXX)
  else()
    find_package(MPI REQUIRED COMPONENTS CXX)
  endif()
  if(MPI_CXX_FOUND)
    set(TGR_OTHER_MPI turbogr/dist/mpi_absent.cc turbogr/dist/mpi_calls.cc)
    add_library(turbogr_mpi MODULE turbogr/dist/mpi_calls.cc)
    target_link_libraries(turbogr_mpi PRIVATE MPI::MPI_CXX turbogr_options)
    # The C interface alone: the C++ one was removed from the standard.
    target_compile_definitions(turbogr_mpi PRIVATE OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
    set_target_properties(turbogr_mpi PROPERTIES CXX_VISIBILITY_PRESET hidden
                          LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  endif()
endif()
