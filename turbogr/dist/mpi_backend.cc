// Ranks as processes that mpirun or srun has started. Only messages between two ranks are used, so
// a wait knows whom it waits for.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/dist/engine.h"
#include "turbogr/dist/host_communicator.h"
#include "turbogr/dist/transport.h"

namespace turbogr::dist {
namespace {

// MPI counts are int; longer messages go in pieces.
constexpr std::size_t kPiece = std::size_t{1} << 30;

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  detail::throw_error(call, ": ", text);
}
#define TGR_MPI(call) check_mpi(call, #call)

class MpiMessage : public Transport::Message {
 public:
  ~MpiMessage() override {
    // Given up: the process is on its way out.
    for (MPI_Request& request : requests_) {
      MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
  }
  bool done() override {
    while (!requests_.empty()) {
      int flag = 0;
      TGR_MPI(MPI_Test(&requests_.back(), &flag, MPI_STATUS_IGNORE));
      if (flag == 0) return false;
      requests_.pop_back();
    }
    return true;
  }
  template <class Post>
  void post_pieces(std::size_t bytes, Post post) {
    std::size_t begin = 0;
    do {
      const std::size_t count = std::min(kPiece, bytes - begin);
      MPI_Request request = MPI_REQUEST_NULL;
      post(begin, static_cast<int>(count), &request);
      requests_.push_back(request);
      begin += count;
    } while (begin < bytes);
  }

 private:
  std::vector<MPI_Request> requests_;
};

class MpiTransport : public Transport {
 public:
  MpiTransport() {
    TGR_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &world_));
    // An error comes back as a code, with a name; the default ends the process without one.
    TGR_MPI(MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN));
    MPI_Comm_rank(world_, &rank_);
    MPI_Comm_size(world_, &size_);
    void* bound = nullptr;
    int found = 0;
    MPI_Comm_get_attr(world_, MPI_TAG_UB, static_cast<void*>(&bound), &found);
    TGR_CHECK(found != 0 && *static_cast<int*>(bound) >= kTags - 1, "this MPI has tags up to ",
              found != 0 ? *static_cast<int*>(bound) : 0, "; ", kTags - 1, " are needed");
    find_nodes();
  }
  ~MpiTransport() override { MPI_Comm_free(&world_); }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::vector<int>& nodes() const override { return nodes_; }

  std::unique_ptr<Message> send(int to, int tag, const void* data, std::size_t bytes) override {
    auto message = std::make_unique<MpiMessage>();
    message->post_pieces(bytes, [&](std::size_t begin, int count, MPI_Request* request) {
      TGR_MPI(MPI_Isend(static_cast<const std::byte*>(data) + begin, count, MPI_BYTE, to, tag,
                        world_, request));
    });
    return message;
  }
  std::unique_ptr<Message> receive(int from, int tag, void* data, std::size_t bytes) override {
    auto message = std::make_unique<MpiMessage>();
    message->post_pieces(bytes, [&](std::size_t begin, int count, MPI_Request* request) {
      TGR_MPI(MPI_Irecv(static_cast<std::byte*>(data) + begin, count, MPI_BYTE, from, tag, world_,
                        request));
    });
    return message;
  }
  std::string failure() const override { return ""; }
  void abort(const std::string& why) noexcept override {
    fmt::print(stderr, "turbogr: rank {}: {}\n", rank_, why);
    std::fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, kFailureStatus);
  }

 private:
  // Ranks whose machines have one name are on one machine, which is known by its lowest rank.
  void find_nodes() {
    constexpr int kLength = MPI_MAX_PROCESSOR_NAME;
    std::vector<char> own(kLength, '\0'), all(own.size() * static_cast<std::size_t>(size_));
    int length = 0;
    TGR_MPI(MPI_Get_processor_name(own.data(), &length));
    TGR_MPI(MPI_Allgather(own.data(), kLength, MPI_CHAR, all.data(), kLength, MPI_CHAR, world_));
    const auto name_of = [&](int rank) {
      return std::string_view(all.data() + static_cast<std::size_t>(rank) * own.size(), own.size());
    };
    for (int rank = 0; rank < size_; ++rank) {
      int lowest = 0;
      while (name_of(lowest) != name_of(rank)) ++lowest;
      nodes_.push_back(lowest);
    }
  }

  MPI_Comm world_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  std::vector<int> nodes_;
};

}  // namespace

bool built_with_mpi() { return true; }

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string whole(text, static_cast<std::size_t>(length));
  return whole.substr(0, whole.find_first_of(",\n"));
}

void run_mpi(const std::function<void(Communicator&)>& body, const WaitOptions& options) {
  // OpenMPI over TCP would queue a rank's consent to receive behind all it has to send, and two
  // ranks that exchange long messages would take turns. Short pieces keep both ways busy. An
  // environment that says otherwise is left alone.
  ::setenv("OMPI_MCA_btl_tcp_rdma_pipeline_frag_size", "262144", /*overwrite=*/0);
  int provided = MPI_THREAD_SINGLE;
  TGR_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided));
  TGR_CHECK(provided >= MPI_THREAD_SERIALIZED,
            "this MPI was built without support for threads; use one with MPI_THREAD_SERIALIZED");
  {
    const auto engine = std::make_shared<Engine>(std::make_unique<MpiTransport>(), options);
    HostCommunicator world(engine);
    try {
      body(world);
    } catch (const std::exception& error) {
      world.abort(error.what());
    }
    // A rank that is done must not leave others in the middle of what they need it for.
    try {
      world.barrier();
    } catch (const std::exception& error) {
      world.abort(error.what());
    }
  }
  MPI_Finalize();
}

}  // namespace turbogr::dist
