#include "turbogr/dist/communicator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <numeric>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/log.h"

namespace turbogr::dist {
namespace {

// A group of one: every collective is a copy at most, and done when it returns.
class SelfCommunicator : public Communicator {
 public:
  explicit SelfCommunicator(std::string name) : name_(std::move(name)) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::string& name() const override { return name_; }
  const std::vector<int>& nodes() const override { return nodes_; }

  Pending start_all_reduce(Values, Reduce) override { return {}; }
  Pending start_all_gather(const void* own, ReceiveParts all) override {
    TGR_CHECK(all.counts.size() == 1, "all_gather: ", all.counts.size(), " counts for 1 ranks");
    copy(own, all.data, all.counts[0]);
    return {};
  }
  Pending start_all_to_all(SendParts send, ReceiveParts receive) override {
    TGR_CHECK(send.counts.size() == 1 && receive.counts.size() == 1,
              "all_to_all: ", send.counts.size(), " and ", receive.counts.size(),
              " counts for 1 ranks");
    TGR_CHECK(send.counts[0] == receive.counts[0], "all_to_all: rank 0 sends itself ",
              send.counts[0], " bytes and wants ", receive.counts[0]);
    copy(send.data, receive.data, send.counts[0]);
    return {};
  }
  Pending start_broadcast(void*, std::int64_t, int root) override {
    TGR_CHECK(root == 0, "broadcast: root ", root, " of 1 ranks");
    return {};
  }
  Pending start_barrier() override { return {}; }

  std::unique_ptr<Communicator> split(int, int, std::string name) override {
    return std::make_unique<SelfCommunicator>(std::move(name));
  }
  void abort(const std::string&) noexcept override {}

 private:
  static void copy(const void* from, void* to, std::int64_t bytes) {
    if (bytes > 0 && from != to) std::memmove(to, from, static_cast<std::size_t>(bytes));
  }
  std::string name_;
  std::vector<int> nodes_ = {0};
};

}  // namespace

Pending& Pending::operator=(Pending&& other) noexcept {
  if (this != &other) {
    drop();
    state_ = std::move(other.state_);
  }
  return *this;
}

Pending::~Pending() { drop(); }

void Pending::wait() {
  // Kept until the end: a wait that throws must not be tried again on the way out.
  const std::shared_ptr<State> state = std::exchange(state_, nullptr);
  if (state) state->wait();
}

void Pending::drop() noexcept {
  if (!state_) return;
  if (std::uncaught_exceptions() > 0) {
    state_->give_up();
  } else {
    try {
      state_->wait();
    } catch (const std::exception& error) {
      log::error("{}", error.what());
    }
  }
  state_.reset();
}

std::vector<std::string> Communicator::all_gather_text(const std::string& own) {
  const std::vector<std::int64_t> sizes = all_gather_value(static_cast<std::int64_t>(own.size()));
  std::string all(
      static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0})), '\0');
  all_gather(own.data(), {all.data(), sizes});
  std::vector<std::string> texts;
  std::size_t at = 0;
  for (const std::int64_t size : sizes) {
    texts.push_back(all.substr(at, static_cast<std::size_t>(size)));
    at += static_cast<std::size_t>(size);
  }
  return texts;
}

std::unique_ptr<Communicator> make_self() { return std::make_unique<SelfCommunicator>("world"); }

bool launched_by_mpi() {
  // mpirun of OpenMPI and of MPICH, and srun with a PMI library.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  return std::getenv("PMIX_RANK") != nullptr ||
         (tasks != nullptr && std::atoi(tasks) > 1 && std::getenv("SLURM_PROCID") != nullptr);
}

int launched_ranks() {
  if (!launched_by_mpi()) return 1;
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (const char* ranks = std::getenv(name)) return std::max(1, std::atoi(ranks));
  }
  return 1;
}

void run_as_launched(const std::function<void(Communicator&)>& body, const WaitOptions& options) {
  if (launched_by_mpi()) {
    run_mpi(body, options);
  } else {
    body(*make_self());
  }
}

}  // namespace turbogr::dist
