// Ranks as processes that mpirun or srun has started. Only messages between two ranks are used, so
// a wait knows whom it waits for.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/dist/engine.h"
#include "turbogr/dist/host_communicator.h"
#include "turbogr/dist/mpi_calls.h"
#include "turbogr/dist/transport.h"

namespace turbogr::dist {
namespace {

// MPI counts are int; longer messages go in pieces.
constexpr std::size_t kPiece = std::size_t{1} << 30;
constexpr int kTextRoom = 1024;

void check_mpi(const MpiCalls& mpi, int code, const char* what) {
  if (code == 0) return;
  char text[kTextRoom] = {};
  mpi.error_text(code, text, kTextRoom);
  detail::throw_error("MPI: ", text, " in ", what);
}

class MpiMessage : public Transport::Message {
 public:
  explicit MpiMessage(const MpiCalls& mpi) : mpi_(mpi) {}
  ~MpiMessage() override {
    // Given up: the process is on its way out.
    for (std::uint64_t& request : requests_) mpi_.drop(&request);
  }
  bool done() override {
    while (!requests_.empty()) {
      int flag = 0;
      check_mpi(mpi_, mpi_.test(&requests_.back(), &flag), "asking about a message");
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
      std::uint64_t request = 0;
      post(begin, static_cast<int>(count), &request);
      requests_.push_back(request);
      begin += count;
    } while (begin < bytes);
  }

 private:
  const MpiCalls& mpi_;
  std::vector<std::uint64_t> requests_;
};

class MpiTransport : public Transport {
 public:
  explicit MpiTransport(const MpiCalls& mpi) : mpi_(mpi) {
    int threads = 0, largest_tag = 0;
    check_mpi(mpi_, mpi_.start(&threads, &rank_, &size_, &largest_tag), "starting");
    TGR_CHECK(threads != 0,
              "this MPI was built without support for threads; use one with MPI_THREAD_SERIALIZED");
    TGR_CHECK(largest_tag >= kTags - 1, "this MPI has tags up to ", largest_tag, "; ", kTags - 1,
              " are needed");
    nodes_.resize(static_cast<std::size_t>(size_));
    check_mpi(mpi_, mpi_.find_nodes(nodes_.data()), "finding the machines");
  }
  ~MpiTransport() override { mpi_.end(); }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::vector<int>& nodes() const override { return nodes_; }

  std::unique_ptr<Message> send(int to, int tag, const void* data, std::size_t bytes) override {
    auto message = std::make_unique<MpiMessage>(mpi_);
    message->post_pieces(bytes, [&](std::size_t begin, int count, std::uint64_t* request) {
      check_mpi(mpi_,
                mpi_.send(to, tag, static_cast<const std::byte*>(data) + begin, count, request),
                "sending");
    });
    return message;
  }
  std::unique_ptr<Message> receive(int from, int tag, void* data, std::size_t bytes) override {
    auto message = std::make_unique<MpiMessage>(mpi_);
    message->post_pieces(bytes, [&](std::size_t begin, int count, std::uint64_t* request) {
      check_mpi(mpi_,
                mpi_.receive(from, tag, static_cast<std::byte*>(data) + begin, count, request),
                "receiving");
    });
    return message;
  }
  std::string failure() const override { return ""; }
  void abort(const std::string& why) noexcept override {
    fmt::print(stderr, "turbogr: rank {}: {}\n", rank_, why);
    std::fflush(stderr);
    mpi_.abort(kFailureStatus);
  }

 private:
  const MpiCalls& mpi_;
  int rank_ = 0;
  int size_ = 1;
  std::vector<int> nodes_;
};

// Tasks that srun says it has started, where nothing says that MPI knows of them.
int srun_tasks() {
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  const bool by_mpirun = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
  return tasks == nullptr || by_mpirun ? 1 : std::atoi(tasks);
}

}  // namespace

bool built_with_mpi() { return true; }

std::string mpi_version() {
  try {
    char text[kTextRoom] = {};
    mpi_calls().library_text(text, kTextRoom);
    const std::string whole(text);
    return whole.substr(0, whole.find_first_of(",\n"));
  } catch (const Error& error) {
    return error.what();
  }
}

void run_mpi(const std::function<void(Communicator&)>& body, const WaitOptions& options) {
  // OpenMPI over TCP would queue a rank's consent to receive behind all it has to send, and two
  // ranks that exchange long messages would take turns. Short pieces keep both ways busy. An
  // environment that says otherwise is left alone.
  ::setenv("OMPI_MCA_btl_tcp_rdma_pipeline_frag_size", "262144", /*overwrite=*/0);
  const int tasks = srun_tasks();  // MPI may write to the environment
  const auto engine =
      std::make_shared<Engine>(std::make_unique<MpiTransport>(mpi_calls()), options);
  HostCommunicator world(engine);
  // Without a PMI that this MPI understands they would be as many worlds of one.
  TGR_CHECK(world.size() > 1 || tasks <= 1, "srun has started ", tasks,
            " tasks and MPI finds one; use `srun --mpi=pmix` (see `srun --mpi=list`), or mpirun "
            "inside the allocation");
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

}  // namespace turbogr::dist
