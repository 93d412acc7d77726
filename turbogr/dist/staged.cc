// Device memory over a host communicator: copied to pinned memory in the stream's order, exchanged
// there by a thread that does one collective after the other, and copied back when it is waited
// for.
#include <algorithm>
#include <bit>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/dist/device_communicator.h"

namespace turbogr::dist {
namespace {

std::int64_t sum_of(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::size_t bytes_of(const Values& values) {
  return static_cast<std::size_t>(std::max<std::int64_t>(values.count, 0)) * size_of(values.dtype);
}

// Pinned memory, and the last copy out of it.
struct Stage {
  Tensor memory;
  Event read;
};

// Taking pinned memory is slow: it goes round.
class Stages {
 public:
  explicit Stages(const Context& ctx) : ctx_(ctx) {}

  std::unique_ptr<Stage> take(std::size_t bytes) {
    const std::size_t room = std::bit_ceil(std::max<std::size_t>(bytes, 256));
    for (std::unique_ptr<Stage>& stage : free_) {
      if (stage->memory.bytes() != room) continue;
      std::unique_ptr<Stage> found = std::move(stage);
      std::swap(stage, free_.back());
      free_.pop_back();
      found->read.wait();
      return found;
    }
    return std::unique_ptr<Stage>(
        new Stage{Tensor(DType::kU8, {static_cast<std::int64_t>(room)},
                         ctx_.device() == Device::kCuda ? Device::kPinned : Device::kCpu),
                  Event(ctx_)});
  }
  void give(std::unique_ptr<Stage> stage) {
    if (stage) free_.push_back(std::move(stage));
  }

 private:
  const Context& ctx_;
  std::vector<std::unique_ptr<Stage>> free_;
};

// One collective: what was sent is in `in`, what comes is put into `out` (which may be the same).
struct Job {
  std::unique_ptr<Stage> in, out;
  Event ready;
  std::function<void(Communicator& host, std::byte* in, std::byte* out)> collective;
  void* to = nullptr;
  std::size_t to_bytes = 0;
  bool finished = false;
  std::exception_ptr error;

  explicit Job(const Context& ctx) : ready(ctx) {}
  std::byte* in_data() { return in->memory.data(); }
  std::byte* out_data() { return out ? out->memory.data() : in_data(); }
};

struct Shared {
  Shared(std::unique_ptr<Communicator> host_in, const Context& ctx_in)
      : host(std::move(host_in)), ctx(ctx_in), stages(ctx_in) {}

  void work() {
    bind_thread(ctx);
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return stopping || !jobs.empty(); });
      if (stopping) return;
      const std::shared_ptr<Job> job = jobs.front();
      jobs.pop_front();
      lock.unlock();
      try {
        job->ready.wait();
        job->collective(*host, job->in_data(), job->out_data());
      } catch (...) {
        job->error = std::current_exception();
      }
      lock.lock();
      job->finished = true;
      --unfinished;
      changed.notify_all();
    }
  }

  // The host communicator is the thread's while there are jobs.
  Communicator& idle_host() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return unfinished == 0; });
    return *host;
  }

  std::unique_ptr<Communicator> host;
  const Context& ctx;
  Stages stages;  // of the thread that starts and waits
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Job>> jobs;
  int unfinished = 0;
  bool stopping = false;
  std::thread thread;
};

class StagedState : public Pending::State {
 public:
  StagedState(std::shared_ptr<Shared> shared, std::shared_ptr<Job> job)
      : shared_(std::move(shared)), job_(std::move(job)) {}

  bool done() override {
    const std::lock_guard lock(shared_->mutex);
    return job_->finished;
  }
  void wait() override {
    {
      std::unique_lock lock(shared_->mutex);
      shared_->changed.wait(lock, [&] { return job_->finished; });
    }
    if (job_->error) std::rethrow_exception(job_->error);
    copy_bytes(shared_->ctx, job_->to, job_->out_data(), job_->to_bytes);
    Stage& source = job_->out ? *job_->out : *job_->in;
    source.read.record(shared_->ctx);
    shared_->stages.give(std::move(job_->in));
    shared_->stages.give(std::move(job_->out));
  }
  // The thread may still be at it: the job keeps its memory until both have let it go.
  void give_up() noexcept override {}

 private:
  std::shared_ptr<Shared> shared_;
  std::shared_ptr<Job> job_;
};

class StagedCommunicator : public Communicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> host, const Context& ctx)
      : shared_(std::make_shared<Shared>(std::move(host), ctx)) {
    if (size() == 1) return;  // copies on the device: nobody to wait for
    shared_->thread = std::thread([shared = shared_.get()] { shared->work(); });
  }
  ~StagedCommunicator() override {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->stopping = true;
    }
    shared_->changed.notify_all();
    if (shared_->thread.joinable()) shared_->thread.join();
  }
  StagedCommunicator(const StagedCommunicator&) = delete;
  StagedCommunicator& operator=(const StagedCommunicator&) = delete;

  int rank() const override { return host().rank(); }
  int size() const override { return host().size(); }
  const std::string& name() const override { return host().name(); }
  const std::vector<int>& nodes() const override { return host().nodes(); }

  Pending start_all_reduce(Values values, Reduce reduce) override {
    if (size() == 1) return {};
    return start(values.data, bytes_of(values), values.data, bytes_of(values), /*in_place=*/true,
                 [values, reduce](Communicator& ranks, std::byte* in, std::byte*) {
                   Values staged = values;
                   staged.data = in;
                   ranks.all_reduce(staged, reduce);
                 });
  }
  Pending start_all_gather(const void* own, ReceiveParts all) override {
    check_counts(all.counts, "all_gather");
    const auto own_bytes = static_cast<std::size_t>(all.counts[static_cast<std::size_t>(rank())]);
    if (size() == 1) return copied(all.data, own, own_bytes);
    return start(
        own, own_bytes, all.data, static_cast<std::size_t>(sum_of(all.counts)),
        /*in_place=*/false,
        [counts = copy_of(all.counts)](Communicator& ranks, std::byte* in, std::byte* out) {
          ranks.all_gather(in, {out, counts});
        });
  }
  Pending start_all_to_all(SendParts send, ReceiveParts receive) override {
    check_counts(send.counts, "all_to_all");
    check_counts(receive.counts, "all_to_all");
    const auto sent = static_cast<std::size_t>(sum_of(send.counts));
    const auto received = static_cast<std::size_t>(sum_of(receive.counts));
    if (size() == 1) {
      TGR_CHECK(sent == received, "all_to_all: rank 0 sends itself ", sent, " bytes and wants ",
                received);
      return copied(receive.data, send.data, sent);
    }
    return start(send.data, sent, receive.data, received, /*in_place=*/false,
                 [out_counts = copy_of(send.counts), in_counts = copy_of(receive.counts)](
                     Communicator& ranks, std::byte* in, std::byte* out) {
                   ranks.all_to_all({in, out_counts}, {out, in_counts});
                 });
  }
  Pending start_broadcast(void* data, std::int64_t bytes, int root) override {
    TGR_CHECK(root >= 0 && root < size(), "broadcast: root ", root, " of ", size(), " ranks");
    if (size() == 1) return {};
    const auto count = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 0));
    return start(data, rank() == root ? count : 0, data, count, /*in_place=*/true,
                 [bytes, root](Communicator& ranks, std::byte* in, std::byte*) {
                   ranks.broadcast(in, bytes, root);
                 });
  }
  Pending start_barrier() override {
    synchronize(shared_->ctx);
    shared_->idle_host().barrier();
    return {};
  }

  std::unique_ptr<Communicator> split(int colour, int key, std::string name) override {
    return make_staged(shared_->idle_host().split(colour, key, std::move(name)), shared_->ctx);
  }
  void abort(const std::string& why) noexcept override { host().abort(why); }

 private:
  static std::vector<std::int64_t> copy_of(std::span<const std::int64_t> counts) {
    return {counts.begin(), counts.end()};
  }
  void check_counts(std::span<const std::int64_t> counts, const char* collective) const {
    TGR_CHECK(static_cast<int>(counts.size()) == size(), collective, ": ", counts.size(),
              " counts for ", size(), " ranks");
    for (const std::int64_t count : counts)
      TGR_CHECK(count >= 0, collective, ": a count of ", count);
  }
  Communicator& host() const { return *shared_->host; }

  Pending copied(void* to, const void* from, std::size_t bytes) {
    if (to != from) copy_bytes(shared_->ctx, to, from, bytes);
    return {};
  }

  template <class Collective>
  Pending start(const void* from, std::size_t from_bytes, void* to, std::size_t to_bytes,
                bool in_place, Collective collective) {
    const Context& ctx = shared_->ctx;
    auto job = std::make_shared<Job>(ctx);
    job->in = shared_->stages.take(in_place ? std::max(from_bytes, to_bytes) : from_bytes);
    if (!in_place) job->out = shared_->stages.take(to_bytes);
    copy_bytes(ctx, job->in_data(), from, from_bytes);
    job->ready.record(ctx);
    job->collective = std::move(collective);
    job->to = to;
    job->to_bytes = to_bytes;
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->jobs.push_back(job);
      ++shared_->unfinished;
    }
    shared_->changed.notify_all();
    return Pending(std::make_shared<StagedState>(shared_, std::move(job)));
  }

  std::shared_ptr<Shared> shared_;
};

}  // namespace

std::unique_ptr<Communicator> make_staged(std::unique_ptr<Communicator> host, const Context& ctx) {
  return std::make_unique<StagedCommunicator>(std::move(host), ctx);
}

}  // namespace turbogr::dist
