// The one file that sees mpi.h. It may become a library of its own: no C++ library, no other
// header of ours.
#include "turbogr/dist/mpi_calls.h"

#include <mpi.h>

#include <cstdlib>
#include <cstring>

namespace turbogr::dist {
namespace {

MPI_Comm world = MPI_COMM_NULL;

static_assert(sizeof(MPI_Request) <= sizeof(std::uint64_t));

void store(MPI_Request from, std::uint64_t* to) {
  *to = 0;
  std::memcpy(to, &from, sizeof(MPI_Request));
}
MPI_Request load(const std::uint64_t* from) {
  MPI_Request request;
  std::memcpy(&request, from, sizeof(MPI_Request));
  return request;
}

int start(int* threads, int* rank, int* size, int* largest_tag) {
  int provided = MPI_THREAD_SINGLE;
  int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  if (code != MPI_SUCCESS) return code;
  *threads = provided >= MPI_THREAD_SERIALIZED ? 1 : 0;
  code = MPI_Comm_dup(MPI_COMM_WORLD, &world);
  if (code != MPI_SUCCESS) return code;
  // An error comes back as a code, with a name; the default ends the process without one.
  code = MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
  if (code != MPI_SUCCESS) return code;
  MPI_Comm_rank(world, rank);
  MPI_Comm_size(world, size);
  void* bound = nullptr;
  int found = 0;
  MPI_Comm_get_attr(world, MPI_TAG_UB, static_cast<void*>(&bound), &found);
  *largest_tag = found != 0 ? *static_cast<int*>(bound) : 0;
  return MPI_SUCCESS;
}

// Ranks whose machines have one name are on one machine.
int find_nodes(int* nodes) {
  constexpr int kLength = MPI_MAX_PROCESSOR_NAME;
  char own[kLength] = {};
  int length = 0, size = 0;
  MPI_Comm_size(world, &size);
  int code = MPI_Get_processor_name(own, &length);
  if (code != MPI_SUCCESS) return code;
  char* all = static_cast<char*>(std::calloc(static_cast<std::size_t>(size), kLength));
  if (all == nullptr) return MPI_ERR_NO_MEM;
  code = MPI_Allgather(own, kLength, MPI_CHAR, all, kLength, MPI_CHAR, world);
  for (int rank = 0; code == MPI_SUCCESS && rank < size; ++rank) {
    int lowest = 0;
    while (std::memcmp(all + lowest * kLength, all + rank * kLength, kLength) != 0) ++lowest;
    nodes[rank] = lowest;
  }
  std::free(all);
  return code;
}

int send(int to, int tag, const void* data, int bytes, std::uint64_t* request) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int code = MPI_Isend(data, bytes, MPI_BYTE, to, tag, world, &made);
  store(made, request);
  return code;
}

int receive(int from, int tag, void* data, int bytes, std::uint64_t* request) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int code = MPI_Irecv(data, bytes, MPI_BYTE, from, tag, world, &made);
  store(made, request);
  return code;
}

int test(std::uint64_t* request, int* done) {
  MPI_Request asked = load(request);
  const int code = MPI_Test(&asked, done, MPI_STATUS_IGNORE);
  store(asked, request);
  return code;
}

void drop(std::uint64_t* request) {
  MPI_Request given_up = load(request);
  MPI_Cancel(&given_up);
  MPI_Request_free(&given_up);
}

void abort_world(int status) { MPI_Abort(MPI_COMM_WORLD, status); }

void end() {
  MPI_Comm_free(&world);
  MPI_Finalize();
}

void copy_text(const char* from, char* text, int room) {
  std::strncpy(text, from, static_cast<std::size_t>(room) - 1);
  text[room - 1] = '\0';
}

void error_text(int code, char* text, int room) {
  char whole[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, whole, &length);
  copy_text(whole, text, room);
}

void library_text(char* text, int room) {
  char whole[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(whole, &length);
  copy_text(whole, text, room);
}

constexpr MpiCalls kCalls = {.version = kMpiCallsVersion,
                             .start = start,
                             .find_nodes = find_nodes,
                             .send = send,
                             .receive = receive,
                             .test = test,
                             .drop = drop,
                             .abort = abort_world,
                             .end = end,
                             .error_text = error_text,
                             .library_text = library_text};

}  // namespace
}  // namespace turbogr::dist

extern "C" __attribute__((visibility("default"))) const turbogr::dist::MpiCalls*
turbogr_mpi_calls() {
  return &turbogr::dist::kCalls;
}
