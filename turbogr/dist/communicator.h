// Ranks that work together. A Communicator is one rank's end of a group: collectives,
// each also started without waiting (a Pending is waited for later), sub-groups by split, and
// abort, which frees the others from a collective this rank will never reach. One process is a
// group of one.
//
//   Pending sums = group.start_all_reduce(gradients, Reduce::kSum);
//   ...compute...
//   sums.wait();
//
// All ranks of a group start the same collectives in the same order. What has been started runs at
// the same time as what was started before it; memory handed over rests until the wait. Sums add in
// rank order on every rank: the same bits everywhere and every time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "turbogr/core/dtype.h"

namespace turbogr::dist {

enum class Reduce : std::uint8_t { kSum, kMax };

// Numbers to be reduced: f32, f64 or i64.
struct Values {
  void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::kF32;

  Values() = default;
  template <class T>
  Values(T* data_in, std::int64_t count_in)
      : data(data_in), count(count_in), dtype(dtype_of<T>()) {}
  template <class T>
  Values(std::vector<T>& values)
      : Values(values.data(), static_cast<std::int64_t>(values.size())) {}
};

// Bytes for or from each rank, end to end in rank order: `counts` [size], in bytes.
struct SendParts {
  const void* data = nullptr;
  std::span<const std::int64_t> counts;
};
struct ReceiveParts {
  void* data = nullptr;
  std::span<const std::int64_t> counts;
};

// A collective under way. Waiting throws when a rank has failed or does not come. One that goes out
// of scope is waited for, or given up when an exception is on its way: the memory may go then.
class Pending {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual bool done() = 0;
    virtual void wait() = 0;
    virtual void give_up() noexcept = 0;
  };

  Pending() = default;  // of nothing: done
  explicit Pending(std::shared_ptr<State> state) : state_(std::move(state)) {}
  Pending(Pending&& other) noexcept = default;
  Pending& operator=(Pending&& other) noexcept;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending();

  bool done() const { return !state_ || state_->done(); }
  void wait();

 private:
  void drop() noexcept;
  std::shared_ptr<State> state_;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;        // "world", for messages and traces
  virtual const std::vector<int>& nodes() const = 0;  // [size], which machine each rank runs on

  // values becomes the sum (or largest) over ranks, on every rank.
  virtual Pending start_all_reduce(Values values, Reduce reduce) = 0;
  // Every rank's bytes, end to end, to every rank; `all.counts` says how many each gives.
  virtual Pending start_all_gather(const void* own, ReceiveParts all) = 0;
  // Part r of `send` goes to rank r; part r of `receive` comes from it.
  virtual Pending start_all_to_all(SendParts send, ReceiveParts receive) = 0;
  virtual Pending start_broadcast(void* data, std::int64_t bytes, int root) = 0;
  virtual Pending start_barrier() = 0;

  void all_reduce(Values values, Reduce reduce) { start_all_reduce(values, reduce).wait(); }
  void all_gather(const void* own, ReceiveParts all) { start_all_gather(own, all).wait(); }
  void all_to_all(SendParts send, ReceiveParts receive) { start_all_to_all(send, receive).wait(); }
  void broadcast(void* data, std::int64_t bytes, int root) {
    start_broadcast(data, bytes, root).wait();
  }
  void barrier() { start_barrier().wait(); }

  // One value a rank, on every rank.
  template <class T>
  std::vector<T> all_gather_value(const T& own) {
    std::vector<T> all(static_cast<std::size_t>(size()));
    const std::vector<std::int64_t> counts(all.size(), static_cast<std::int64_t>(sizeof(T)));
    all_gather(&own, {all.data(), counts});
    return all;
  }

  std::vector<std::string> all_gather_text(const std::string& own);

  // Ranks of the same colour form a group, ordered by (key, rank). Collective; the new group lives
  // no longer than this one's world.
  virtual std::unique_ptr<Communicator> split(int colour, int key, std::string name) = 0;

  // Adds to each rank of the world how many seconds this one has waited for messages to and from it
  // so far. Nothing where nobody counts them (one rank, or GPUs that exchange without the host).
  virtual void add_seconds_waited(std::span<double> /*by_rank*/) const {}

  // Ends every rank's waiting with this rank's number and `why`. Under MPI it ends the processes.
  virtual void abort(const std::string& why) noexcept = 0;
};

std::unique_ptr<Communicator> make_self();

// How long a wait may last before it is an error that names who is missing.
struct WaitOptions {
  double warn_seconds = 30;
  double timeout_seconds = 600;
};

// Runs body as ranks 0 to size - 1, each a thread of this process, and returns when all have
// ended. A rank that throws ends the others; the first rank's Error is thrown, with its number.
// `nodes` [size] says which machine each rank plays on; empty: all on one.
void run_threads(int size, const std::function<void(Communicator&)>& body,
                 const WaitOptions& options = {}, const std::vector<int>& nodes = {});

inline constexpr int kFailureStatus = 1;

// Whether mpirun or srun has started this process as one of several, or of one under mpirun.
bool launched_by_mpi();
int launched_ranks();  // how many they say they have started; 1 where nothing says so
bool built_with_mpi();
std::string mpi_version();  // of the library; "not in this build"

// Runs body once, as this process's rank of the world that mpirun or srun has started. When body
// throws, the message goes to standard error with the rank's number and every rank ends with
// kFailureStatus. Throws in a build without MPI.
void run_mpi(const std::function<void(Communicator&)>& body, const WaitOptions& options = {});

// Runs body as what this process was started as: a rank of mpirun's or srun's world, or alone.
void run_as_launched(const std::function<void(Communicator&)>& body,
                     const WaitOptions& options = {});

}  // namespace turbogr::dist
