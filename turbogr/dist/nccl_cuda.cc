// From GPU to GPU. The library is opened when first asked for, so that the program starts on
// machines that have none. Collectives run on a stream of the communicator's own, between two
// events of the context's: what is computed meanwhile goes on beside them.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/cuda_call.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/loaded_library.h"
#include "turbogr/core/log.h"
#include "turbogr/dist/device_communicator.h"

namespace turbogr::dist {
namespace {

using Clock = std::chrono::steady_clock;

#define TGR_NCCL_CALLS(X) \
  X(GetVersion)           \
  X(GetUniqueId)          \
  X(GetErrorString)       \
  X(GetLastError)         \
  X(CommInitRank)         \
  X(CommDestroy)          \
  X(CommAbort)            \
  X(CommGetAsyncError)    \
  X(GroupStart) X(GroupEnd) X(AllReduce) X(AllGather) X(Broadcast) X(Send) X(Recv)

// libnccl's functions, or why there are none.
struct Library {
#define TGR_NCCL_MEMBER(Call) decltype(&::nccl##Call) Call = nullptr;
  TGR_NCCL_CALLS(TGR_NCCL_MEMBER)
#undef TGR_NCCL_MEMBER
  std::string problem;

  Library() {
    const LoadedLibrary nccl = open_library("NCCL", "libnccl.so.2", "TGR_NCCL");
    if (nccl.handle == nullptr) {
      problem = nccl.problem + "; it is a package of NVIDIA's, or `pip install nvidia-nccl-cu13`";
      return;
    }
#define TGR_NCCL_FIND(Call)                                                           \
  Call = reinterpret_cast<decltype(&::nccl##Call)>(dlsym(nccl.handle, "nccl" #Call)); \
  if (Call == nullptr) problem = "NCCL is too old: no nccl" #Call;
    TGR_NCCL_CALLS(TGR_NCCL_FIND)
#undef TGR_NCCL_FIND
  }
  static const Library& get() {
    static const Library library;
    return library;
  }
};

void check_nccl(ncclResult_t code, ncclComm_t communicator, const char* what) {
  if (code == ncclSuccess) return;
  const Library& nccl = Library::get();
  const char* last = nccl.GetLastError(communicator);
  detail::throw_error("NCCL: ", nccl.GetErrorString(code), " in ", what,
                      last != nullptr && *last != '\0' ? "; " : "", last != nullptr ? last : "",
                      "; NCCL_DEBUG=INFO tells more");
}

ncclDataType_t type_of(const Values& values, const char* collective) {
  switch (values.dtype) {
    case DType::kF32:
      return ncclFloat32;
    case DType::kF64:
      return ncclFloat64;
    case DType::kI64:
      return ncclInt64;
    default:
      detail::throw_error(collective, ": cannot reduce ", name_of(values.dtype),
                          "; use f32, f64 or i64");
  }
}

ncclRedOp_t operation_of(Reduce reduce) { return reduce == Reduce::kSum ? ncclSum : ncclMax; }

std::size_t count_of(const Values& values, const char* collective) {
  TGR_CHECK(values.count >= 0, collective, ": ", values.count, " values");
  return static_cast<std::size_t>(values.count);
}

cudaStream_t stream_of(const Context& ctx) { return static_cast<cudaStream_t>(ctx.stream()); }

// An event of CUDA's own: copies of a pointer to it travel with a collective.
struct Mark {
  cudaEvent_t event = nullptr;
  Mark() { TGR_CUDA_CALL(cudaEventCreateWithFlags(&event, cudaEventDisableTiming)); }
  ~Mark() { cudaEventDestroy(event); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  void record(cudaStream_t stream) const { TGR_CUDA_CALL(cudaEventRecord(event, stream)); }
  bool passed() const {
    const cudaError_t code = cudaEventQuery(event);
    if (code == cudaErrorNotReady) return false;
    TGR_CUDA_CALL(code);
    return true;
  }
};

// Looks every now and then whether collectives end: a host that waits for a stream cannot.
class Watch {
 public:
  Watch(const Context& ctx, Communicator& host, ncclComm_t communicator, const WaitOptions& options)
      : host_(host), communicator_(communicator), options_(options) {
    thread_ = std::thread([this, &ctx] { work(ctx); });
  }
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void add(std::string what, std::shared_ptr<Mark> end) {
    const std::lock_guard lock(mutex_);
    collectives_.push_back({std::move(what), std::move(end), Clock::now(), false});
  }

 private:
  struct Collective {
    std::string what;
    std::shared_ptr<Mark> end;
    Clock::time_point begin;
    bool warned;
  };

  void work(const Context& ctx) {
    try {
      bind_thread(ctx);
      std::unique_lock lock(mutex_);
      while (!stopping_) {
        look();
        changed_.wait_for(lock, std::chrono::milliseconds(200));
      }
    } catch (const std::exception& error) {
      host_.abort(error.what());
    }
  }

  void look() {
    // They end in the order of their stream.
    while (!collectives_.empty() && collectives_.front().end->passed()) collectives_.pop_front();
    if (collectives_.empty()) return;
    ncclResult_t state = ncclSuccess;
    Library::get().CommGetAsyncError(communicator_, &state);
    check_nccl(state, communicator_, collectives_.front().what.c_str());
    Collective& collective = collectives_.front();
    const double seconds = std::chrono::duration<double>(Clock::now() - collective.begin).count();
    if (!collective.warned && seconds > options_.warn_seconds) {
      collective.warned = true;
      log::warn("rank {}: {} has not ended for {:.0f} s", host_.rank(), collective.what, seconds);
    }
    TGR_CHECK(seconds <= options_.timeout_seconds, collective.what, " has not ended for ",
              options_.timeout_seconds,
              " s: a rank is missing or stuck; look at the others' last lines, or raise "
              "dist.timeout");
  }

  Communicator& host_;
  ncclComm_t communicator_;
  const WaitOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Collective> collectives_;
  bool stopping_ = false;
  std::thread thread_;
};

class NcclState : public Pending::State {
 public:
  NcclState(const Context& ctx, std::shared_ptr<Mark> end) : ctx_(ctx), end_(std::move(end)) {}
  bool done() override { return end_->passed(); }
  void wait() override { TGR_CUDA_CALL(cudaStreamWaitEvent(stream_of(ctx_), end_->event, 0)); }
  void give_up() noexcept override {}

 private:
  const Context& ctx_;
  std::shared_ptr<Mark> end_;
};

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> host, const Context& ctx,
                   const WaitOptions& options)
      : host_(std::move(host)), ctx_(ctx), options_(options), nccl_(Library::get()) {
    TGR_CHECK(nccl_.problem.empty(), nccl_.problem, ", or set dist.link = \"staged\"");
    TGR_CHECK(ctx.device() == Device::kCuda,
              "NCCL over memory of a CPU; give it a context of device = \"cuda\"");
    bind_thread(ctx);
    ncclUniqueId id = {};
    if (host_->rank() == 0) check_nccl(nccl_.GetUniqueId(&id), nullptr, "starting");
    host_->broadcast(&id, sizeof id, 0);
    check_nccl(nccl_.CommInitRank(&communicator_, host_->size(), id, host_->rank()), nullptr,
               "introducing the ranks");
    int least = 0, greatest = 0;
    TGR_CUDA_CALL(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    TGR_CUDA_CALL(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
    watch_ = std::make_unique<Watch>(ctx, *host_, communicator_, options);
  }
  ~NcclCommunicator() override {
    watch_.reset();
    // Destroying waits for collectives that others may never reach.
    if (std::uncaught_exceptions() > 0) {
      nccl_.CommAbort(communicator_);
    } else {
      cudaStreamSynchronize(stream_);
      nccl_.CommDestroy(communicator_);
    }
    cudaStreamDestroy(stream_);
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  const std::string& name() const override { return host_->name(); }
  const std::vector<int>& nodes() const override { return host_->nodes(); }

  Pending start_all_reduce(Values values, Reduce reduce) override {
    const ncclDataType_t type = type_of(values, "all_reduce");
    const std::size_t count = count_of(values, "all_reduce");
    return start("all_reduce", [&] {
      return count == 0 ? ncclSuccess
                        : nccl_.AllReduce(values.data, values.data, count, type,
                                          operation_of(reduce), communicator_, stream_);
    });
  }
  Pending start_all_gather(const void* own, ReceiveParts all) override {
    check_counts(all.counts, "all_gather");
    const std::int64_t first = all.counts[0];
    if (std::all_of(all.counts.begin(), all.counts.end(),
                    [&](std::int64_t count) { return count == first; })) {
      return start("all_gather", [&] {
        return first == 0 ? ncclSuccess
                          : nccl_.AllGather(own, all.data, static_cast<std::size_t>(first),
                                            ncclInt8, communicator_, stream_);
      });
    }
    // Unequal parts: each rank's to all.
    return start_group("all_gather", [&] {
      std::int64_t offset = 0;
      for (int root = 0; root < size(); ++root) {
        const std::int64_t bytes = all.counts[static_cast<std::size_t>(root)];
        if (bytes > 0) {
          check(nccl_.Broadcast(own, static_cast<std::byte*>(all.data) + offset,
                                static_cast<std::size_t>(bytes), ncclInt8, root, communicator_,
                                stream_),
                "all_gather");
        }
        offset += bytes;
      }
    });
  }
  Pending start_all_to_all(SendParts send, ReceiveParts receive) override {
    check_counts(send.counts, "all_to_all");
    check_counts(receive.counts, "all_to_all");
    const auto own = static_cast<std::size_t>(rank());
    TGR_CHECK(send.counts[own] == receive.counts[own], "all_to_all: rank ", own, " sends itself ",
              send.counts[own], " bytes and wants ", receive.counts[own]);
    return start_group("all_to_all", [&] {
      std::int64_t sent = 0, received = 0;
      for (int peer = 0; peer < size(); ++peer) {
        const std::int64_t out = send.counts[static_cast<std::size_t>(peer)];
        const std::int64_t in = receive.counts[static_cast<std::size_t>(peer)];
        if (out > 0) {
          check(nccl_.Send(static_cast<const std::byte*>(send.data) + sent,
                           static_cast<std::size_t>(out), ncclInt8, peer, communicator_, stream_),
                "all_to_all");
        }
        if (in > 0) {
          check(nccl_.Recv(static_cast<std::byte*>(receive.data) + received,
                           static_cast<std::size_t>(in), ncclInt8, peer, communicator_, stream_),
                "all_to_all");
        }
        sent += out;
        received += in;
      }
    });
  }
  Pending start_broadcast(void* data, std::int64_t bytes, int root) override {
    TGR_CHECK(root >= 0 && root < size(), "broadcast: root ", root, " of ", size(), " ranks");
    TGR_CHECK(bytes >= 0, "broadcast: ", bytes, " bytes");
    return start("broadcast", [&] {
      return bytes == 0 ? ncclSuccess
                        : nccl_.Broadcast(data, data, static_cast<std::size_t>(bytes), ncclInt8,
                                          root, communicator_, stream_);
    });
  }
  Pending start_barrier() override {
    TGR_CUDA_CALL(cudaStreamSynchronize(stream_));
    synchronize(ctx_);
    return host_->start_barrier();
  }

  std::unique_ptr<Communicator> split(int colour, int key, std::string name) override {
    return make_nccl(host_->split(colour, key, std::move(name)), ctx_, options_);
  }
  void abort(const std::string& why) noexcept override { host_->abort(why); }

 private:
  void check(ncclResult_t code, const char* collective) const {
    check_nccl(code, communicator_, collective);
  }
  void check_counts(std::span<const std::int64_t> counts, const char* collective) const {
    TGR_CHECK(static_cast<int>(counts.size()) == size(), collective, ": ", counts.size(),
              " counts for ", size(), " ranks");
    for (const std::int64_t count : counts)
      TGR_CHECK(count >= 0, collective, ": a count of ", count);
  }

  template <class Collective>
  Pending start(const char* collective, Collective&& queue) {
    const Mark begin;
    begin.record(stream_of(ctx_));
    TGR_CUDA_CALL(cudaStreamWaitEvent(stream_, begin.event, 0));
    check(queue(), collective);
    const auto end = std::make_shared<Mark>();
    end->record(stream_);
    watch_->add(
        std::string(collective) + " " + std::to_string(started_++) + " of " + name() + " by NCCL",
        end);
    return Pending(std::make_shared<NcclState>(ctx_, end));
  }
  template <class Parts>
  Pending start_group(const char* collective, Parts&& parts) {
    return start(collective, [&] {
      check(nccl_.GroupStart(), collective);
      parts();
      return nccl_.GroupEnd();
    });
  }

  std::unique_ptr<Communicator> host_;
  const Context& ctx_;
  const WaitOptions options_;
  const Library& nccl_;
  ncclComm_t communicator_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::int64_t started_ = 0;
  std::unique_ptr<Watch> watch_;
};

}  // namespace

bool built_with_nccl() { return true; }

bool has_nccl() { return Library::get().problem.empty(); }

std::string nccl_version() {
  if (!has_nccl()) return Library::get().problem;
  int version = 0;
  check_nccl(Library::get().GetVersion(&version), nullptr, "asking for the version");
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::unique_ptr<Communicator> make_nccl(std::unique_ptr<Communicator> host, const Context& ctx,
                                        const WaitOptions& options) {
  return std::make_unique<NcclCommunicator>(std::move(host), ctx, options);
}

}  // namespace turbogr::dist
