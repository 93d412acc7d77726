# MPI, when asked for or there. TGR_OTHER_MPI are the sources of three ways that do not apply: linked in;
# opened at run time as libturbogr_mpi.so, by a program that brings its libraries along and must start
# where no MPI is; or absent, and the program says so when mpirun starts it.
set(TGR_MPI_LIBRARIES "")
set(TGR_OTHER_MPI turbogr/dist/mpi_backend.cc turbogr/dist/mpi_calls.cc turbogr/dist/mpi_linked.cc
    turbogr/dist/mpi_loaded.cc)
if(NOT TGR_MPI STREQUAL "OFF")
  if(TGR_MPI STREQUAL "AUTO")
    find_package(MPI QUIET COMPONENTS CXX)
  else()
    find_package(MPI REQUIRED COMPONENTS CXX)
  endif()
  if(MPI_CXX_FOUND)
    # The C interface alone: the C++ one was removed from the standard.
    add_library(turbogr_mpi_interface INTERFACE)
    target_link_libraries(turbogr_mpi_interface INTERFACE MPI::MPI_CXX)
    target_compile_definitions(turbogr_mpi_interface INTERFACE OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
    if(TGR_PORTABLE)
      set(TGR_OTHER_MPI turbogr/dist/mpi_absent.cc turbogr/dist/mpi_calls.cc turbogr/dist/mpi_linked.cc)
      add_library(turbogr_mpi MODULE turbogr/dist/mpi_calls.cc)
      target_link_libraries(turbogr_mpi PRIVATE turbogr_mpi_interface turbogr_options)
      set_target_properties(turbogr_mpi PROPERTIES CXX_VISIBILITY_PRESET hidden
                            LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
    else()
      set(TGR_MPI_LIBRARIES turbogr_mpi_interface)
      set(TGR_OTHER_MPI turbogr/dist/mpi_absent.cc turbogr/dist/mpi_loaded.cc)
    endif()
  endif()
endif()
