// A training step over many ranks, and how its stages overlap with those of the steps before and
// after it. The dense weights are on every rank, the item rows spread over each group.
//
//   draw, exchange ids  ->  fetch rows  ->  forward, backward, sum dense gradients, update
//                                       ->  return row gradients  ->  update rows
//
//   serial           one after the other
//   overlap          the next step draws and exchanges ids while this one computes
//   exact_prefetch   it fetches rows, too; those both steps touch return their gradients first and
//                    are fetched again after the update, the others' return while the next computes
//   semi_async       it fetches rows, too, and rows are updated while the next step computes: what
//                    a step reads misses the update just before it (after `warmup` steps)
// The first three give the same bits.
//
// On a GPU the host of a rank still draws and exchanges ids; rows, their gradients and the dense
// ones stay in the GPU's memory and go from there to other ranks (dist/device_communicator.h). What
// runs ahead has a stream of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/data/batch.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/dist/device_communicator.h"
#include "turbogr/dist/topology.h"
#include "turbogr/embedding/device_exchange.h"
#include "turbogr/embedding/sharded_table.h"
#include "turbogr/train/dense_reducer.h"
#include "turbogr/train/lane.h"
#include "turbogr/train/retrieval_trainer.h"

namespace turbogr::train {

enum class StepSchedule : std::uint8_t { kSerial, kOverlap, kExactPrefetch, kSemiAsync };
StepSchedule step_schedule_from_name(std::string_view name);
std::size_t flights_at_a_time(StepSchedule schedule);  // steps on their way, at most

struct PipelineOptions {
  StepSchedule schedule = StepSchedule::kSerial;
  std::int64_t delay = 1;   // semi_async: 0 is overlap
  std::int64_t warmup = 0;  // semi_async: steps without delay
  dist::Topology topology;
  embedding::Placement placement = embedding::Placement::kRoundRobin;
  embedding::ReplicaMode replicas = embedding::ReplicaMode::kExact;
  std::int64_t average_every = 1;  // average: steps between means
  DType row_wire = DType::kF32;
  DType gradient_wire = DType::kF32;
  std::int64_t bucket_bytes = 1 << 20;
  // Rows move by device_exchange.h: always on a GPU, and on a CPU to try it there.
  bool device_rows = false;
  dist::DeviceLink link = dist::DeviceLink::kStaged;
  dist::WaitOptions wait;  // of NCCL's verbs
};

// Where the computing thread's time went, in seconds: computing, or waiting for what others send.
struct StageTimes {
  double compute = 0;               // forward, backward, updates, drawing
  double dense_communication = 0;   // sums of dense gradients not hidden behind the backward pass
  double sparse_communication = 0;  // ids, rows and their gradients not hidden behind computing

  StageTimes operator-(const StageTimes& earlier) const {
    return {compute - earlier.compute, dense_communication - earlier.dense_communication,
            sparse_communication - earlier.sparse_communication};
  }
};

// Memory a rank needs beside the trainer's, for any number of ranks.
struct PipelineMemory {
  std::size_t table = 0;    // this rank's rows and their state
  std::size_t slots = 0;    // rows of the steps on their way, and their gradients
  std::size_t buckets = 0;  // dense gradients on theirs
  std::size_t host = 0;     // beside a GPU's, which all above is then
};
template <class T>
PipelineMemory pipeline_memory(const RetrievalOptions& trainer, std::int64_t num_items,
                               std::int64_t dense_weights, const PipelineOptions& options);

template <class T>
class RankPipeline {
 public:
  // The trainer holds no table of its own. All outlive the pipeline; the world is used by nobody
  // else meanwhile.
  RankPipeline(const Context& ctx, dist::Communicator& world, RetrievalTrainer<T>& trainer,
               const PipelineOptions& options);
  ~RankPipeline();
  void initialise(const Context& ctx);

  // As RetrievalTrainer's, for this rank's share of the step: it may have no tokens while others
  // have. `stop` is this rank's wish to end. Results are those of all ranks together.
  void submit(const Context& ctx, std::span<const data::Batch> batches, bool stop = false);
  StepResult finish(const Context& ctx);
  std::int64_t pending() const { return static_cast<std::int64_t>(flights_.size()); }
  std::int64_t queue_length() const;
  bool stop_asked() const { return stop_asked_; }  // some rank's wish, known to all alike

  // The whole table in the trainer's own memory: on every rank, for evaluation, or with its
  // optimiser's state on rank 0 alone, for checkpoints. Nothing may be pending. Replicas that go
  // their own way are averaged first, so that what all groups have learnt is in it. And gone again.
  void assemble(bool everywhere);
  void dismiss();
  // From a whole table in the trainer's memory to the shards.
  void take_whole();

  embedding::ShardedTable& table() { return table_; }
  const StageTimes& times() const { return times_; }
  std::size_t bytes() const;

 private:
  // One step on its way.
  struct Flight {
    StepSlot<T> slot;
    std::vector<data::Batch> batches;
    std::size_t parts = 0;
    std::int64_t step = 0;  // from 0
    std::int64_t tokens = 0, all_tokens = 0;
    std::int64_t predicting = 0, all_predicting = 0, group_predicting = 0;  // those the loss counts
    std::vector<std::int64_t> positives;  // distinct, of all ranks, where the sampler asks
    bool stop = false;
    embedding::Route route;
    embedding::Refresh refresh;
    embedding::Route urgent, others;   // exact_prefetch: the route's rows that the next step reads
    embedding::Route* left = nullptr;  // what is still to be returned and updated
    embedding::DeviceExchange exchange, urgent_exchange, others_exchange;  // of each route
    // f64 that the device reads or writes, and the host's copies (numbers_at in the source).
    Tensor numbers, host_numbers;
    ops::StepScale scale{};
    double dense_squares = 0, row_squares = 0, loss = 0;
    double own_row_squares = 0;  // of gradients not summed yet
    StepResult result;
    bool done = false;
  };
  // A communicator each for what may run at the same time.
  struct Ends {
    std::unique_ptr<dist::Communicator> world;
    dist::SparseGroups groups;
    std::unique_ptr<dist::Communicator> device_group, device_replicas;  // where rows move by device
    embedding::Circles circles() const { return {groups.group.get(), groups.replicas.get()}; }
    embedding::Circles device_circles() const {
      return {device_group.get(), device_replicas.get()};
    }
  };

  bool late_updates() const;  // of the step being submitted: it may miss the update before it
  Flight& free_flight();
  void prepare(const Context& ctx, const Ends& ends, Flight& flight);
  void fetch(const Context& ctx, const Ends& ends, Flight& flight);
  void compute(const Context& ctx, Flight& flight);
  void update_dense(const Context& ctx, Flight& flight);
  void return_rows(const Context& ctx, const Ends& ends, Flight& flight, embedding::Route& route);
  void update_rows(const Context& ctx, Flight& flight, const embedding::Route& route);
  void average_replicas(const Context& ctx);
  void end_step(Flight& flight);
  void whole_step(const Context& ctx, Flight& flight);
  void end_late(const Context& ctx, const Ends& ends, Flight& flight);
  double own_squares(const Context& ctx, Flight& flight);
  void advance(const Context& ctx, Flight* next);
  void drain(const Context& ctx);
  template <class Work>
  void guarded(Work&& work);
  int lane_of(const Context& ctx) const;
  double* time_of(const Context& ctx, double StageTimes::*which);

  typename RetrievalTrainer<T>::Positives gather_positives(const Ends& ends, Flight& flight);
  double squares_of(const Context& ctx, View<const float, 1> values, Flight& flight);
  embedding::DeviceExchange& exchange_of(Flight& flight, const embedding::Route& route) const;
  double row_factor(const Flight& flight) const;
  void add_device_ends(const Context& ctx, Ends& ends);
  const ops::StepScale* send_scale(const Context& ctx, Flight& flight, std::int64_t at,
                                   const ops::StepScale& scale);

  PipelineOptions options_;
  const Context& ctx_;
  dist::Communicator& world_;
  RetrievalTrainer<T>& trainer_;
  SequenceMarks marks_;  // of the batch last submitted
  // One thread: the others compute. On a GPU all of the host's, and a stream.
  Context lane_ctx_;
  Ends ahead_, behind_;  // for the lane's work on the next step, and for the step being computed
  std::unique_ptr<dist::Communicator> dense_ranks_;
  embedding::ShardedTable table_;
  Event before_lane_;  // what the lane's stream must see
  std::unique_ptr<DenseReducer> reducer_;
  std::vector<std::int64_t> blocks_by_layers_;  // gradient blocks final after so many layers

  std::vector<std::unique_ptr<Flight>> slots_;
  std::deque<Flight*> flights_;   // submitted and not finished, oldest first
  Flight* held_ = nullptr;        // rows fetched, not computed
  Flight* late_ = nullptr;        // computed, rows not all updated
  bool replicas_differ_ = false;  // averaged ones: rows were updated since the last mean
  bool stop_asked_ = false;
  StageTimes times_;
  std::unique_ptr<Lane> lane_;  // last: ends first
};

}  // namespace turbogr::train
