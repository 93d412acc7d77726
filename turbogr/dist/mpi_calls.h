// What is used of an MPI, as a table of C functions: the one file that sees mpi.h fills it in; it
// is opened as libturbogr_mpi.so, so that the program starts without an MPI. No exceptions and no
// C++ types cross it.
#pragma once

#include <cstdint>

namespace turbogr::dist {

inline constexpr int kMpiCallsVersion = 1;

// Those that return int return 0 or an MPI error code.
struct MpiCalls {
  int version;  // kMpiCallsVersion
  // Begins MPI, with a world of our own: *threads is 0 when this MPI cannot serve several threads
  // in turn.
  int (*start)(int* threads, int* rank, int* size, int* largest_tag);
  int (*find_nodes)(int* nodes);  // [size], the lowest rank on the same machine
  int (*send)(int to, int tag, const void* data, int bytes, std::uint64_t* request);
  int (*receive)(int from, int tag, void* data, int bytes, std::uint64_t* request);
  int (*test)(std::uint64_t* request, int* done);  // the request is gone when it is done
  void (*drop)(std::uint64_t* request);            // given up
  void (*abort)(int status);                       // ends every process of the world
  void (*end)();
  void (*error_text)(int code, char* text, int room);
  void (*library_text)(char* text, int room);
};

// Throws where there is none.
const MpiCalls& mpi_calls();

}  // namespace turbogr::dist

extern "C" const turbogr::dist::MpiCalls* turbogr_mpi_calls();
