#include "turbogr/train/rank_pipeline.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/dist/device_communicator.h"
#include "turbogr/model/buffers.h"
#include "turbogr/train/rank_stages.h"

namespace turbogr::train {
namespace {

using data::Batch;
using model::first_rows;

// Row gradients return in pieces of columns: enough for one's sums to hide behind another's way.
constexpr std::int64_t kPieceColumns = 32;
constexpr std::int64_t kMostPieces = 4;

embedding::ShardedOptions table_options(const RetrievalOptions& trainer, std::int64_t num_items,
                                        const PipelineOptions& options, Device device) {
  return {.rows = num_items,
          .width = trainer.model.width,
          .optimiser = trainer.table_optimiser,
          .placement = options.placement,
          .replicas = options.replicas,
          .row_wire = options.row_wire,
          .gradient_wire = options.gradient_wire,
          .device = device,
          .pieces = std::clamp<std::int64_t>(trainer.model.width / kPieceColumns, 1, kMostPieces),
          .seed = trainer.seed,
          .scale = trainer.table_scale};
}

}  // namespace

StepSchedule step_schedule_from_name(std::string_view name) {
  if (name == "serial") return StepSchedule::kSerial;
  if (name == "overlap") return StepSchedule::kOverlap;
  if (name == "exact_prefetch") return StepSchedule::kExactPrefetch;
  TGR_CHECK(name == "semi_async", "unknown schedule '", name,
            "'; use serial, overlap, exact_prefetch or semi_async");
  return StepSchedule::kSemiAsync;
}

template <class T>
RankPipeline<T>::RankPipeline(const Context& ctx, dist::Communicator& world,
                              RetrievalTrainer<T>& trainer, const PipelineOptions& options)
    : options_(options),
      ctx_(ctx),
      world_(world),
      trainer_(trainer),
      marks_(trainer.options().parts),
      lane_ctx_({.device = ctx.device(),
                 .threads = ctx.device() == Device::kCuda ? ctx.host().threads() : 1,
                 .simd = ctx.simd(),
                 .deterministic = ctx.deterministic(),
                 .trace = ctx.trace()}),
      ahead_{world.split(0, world.rank(), "ranks (ahead)"),
             dist::make_sparse_groups(world, options.topology)},
      behind_{world.split(0, world.rank(), "ranks"),
              dist::make_sparse_groups(world, options.topology)},
      dense_ranks_(world.split(0, world.rank(), "dense gradients")),
      table_(table_options(trainer.options(), trainer.num_items(), options, ctx.device()),
             ahead_.groups.group->rank(), ahead_.groups.group->size()),
      before_lane_(ctx) {
  if (ctx.device() == Device::kCuda) options_.device_rows = true;
  if (options_.device_rows) {
    add_device_ends(lane_ctx_, ahead_);
    add_device_ends(ctx, behind_);
    dense_ranks_ =
        dist::make_device_communicator(options_.link, std::move(dense_ranks_), ctx, options_.wait);
  }
  TGR_CHECK(options.delay == 0 || options.delay == 1, "a delay of ", options.delay,
            " steps; use 0 or 1");
  if (options_.schedule == StepSchedule::kSemiAsync && options_.delay == 0) {
    options_.schedule = StepSchedule::kOverlap;
  }
  TGR_CHECK(options_.replicas == embedding::ReplicaMode::kExact || options_.average_every >= 1,
            "replicas averaged every ", options_.average_every, " steps; use at least 1");
  TGR_CHECK(options_.replicas == embedding::ReplicaMode::kExact ||
                options_.schedule == StepSchedule::kSerial ||
                options_.schedule == StepSchedule::kOverlap,
            "averaged replicas change every row now and then, which rows fetched ahead would miss; "
            "use dist.replicas = \"exact\", or train.schedule = \"serial\" or \"overlap\"");
  const std::size_t flights = flights_at_a_time(options_.schedule);
  if (ctx.trace() != nullptr) {
    ctx.trace()->name_lane(kComputeLane, "this step");
    ctx.trace()->name_lane(kAheadLane, "next step");
  }
  for (std::size_t i = 0; i < flights; ++i) {
    slots_.push_back(std::unique_ptr<Flight>(
        new Flight{StepSlot<T>(ctx, trainer.options(), trainer.num_items())}));
    const std::int64_t numbers = kLossSums + trainer.options().accumulate;
    slots_.back()->numbers = Tensor(DType::kF64, {numbers}, ctx.device());
    slots_.back()->host_numbers = Tensor(
        DType::kF64, {numbers}, ctx.device() == Device::kCuda ? Device::kPinned : Device::kCpu);
  }
  if (flights > 1) lane_ = std::make_unique<Lane>();

  // Gradients are final layer by layer, the last one first; what is left comes at the end.
  auto& parameters = trainer.model().parameters();
  std::vector<GradientBlock> blocks;
  std::vector<bool> taken(static_cast<std::size_t>(parameters.size()), false);
  const auto add = [&](int index) {
    Tensor& gradient = parameters.gradient(index);
    blocks.push_back({reinterpret_cast<float*>(gradient.data()), gradient.size()});
    taken[static_cast<std::size_t>(index)] = true;
  };
  blocks_by_layers_.push_back(0);
  for (std::int64_t layer = trainer.options().model.layers; layer-- > 0;) {
    const auto range = trainer.model().layer_parameters(layer);
    for (int index = range.first; index < range.last; ++index) add(index);
    blocks_by_layers_.push_back(std::ssize(blocks));
  }
  for (int index = 0; index < parameters.size(); ++index) {
    if (!taken[static_cast<std::size_t>(index)]) add(index);
  }
  reducer_ =
      std::make_unique<DenseReducer>(ctx, *dense_ranks_, std::move(blocks), options_.bucket_bytes);
}

template <class T>
void RankPipeline<T>::add_device_ends(const Context& ctx, Ends& ends) {
  const auto reach = [&](dist::Communicator& host) {
    return dist::make_device_communicator(
        options_.link, host.split(0, host.rank(), host.name() + " (rows)"), ctx, options_.wait);
  };
  ends.device_group = reach(*ends.groups.group);
  ends.device_replicas = reach(*ends.groups.replicas);
}

template <class T>
RankPipeline<T>::~RankPipeline() = default;

template <class T>
void RankPipeline<T>::initialise(const Context& ctx) {
  trainer_.initialise(ctx);
  table_.initialise(ctx);
}

template <class T>
std::int64_t RankPipeline<T>::queue_length() const {
  return std::ssize(slots_);
}

// An exception here must free the other ranks, and this rank's own lane, before the stack unwinds.
template <class T>
template <class Work>
void RankPipeline<T>::guarded(Work&& work) {
  try {
    work();
  } catch (const std::exception& error) {
    world_.abort(error.what());
    throw;
  }
}

template <class T>
int RankPipeline<T>::lane_of(const Context& ctx) const {
  return &ctx == &lane_ctx_ ? kAheadLane : kComputeLane;
}

// The lane's time costs nobody anything.
template <class T>
double* RankPipeline<T>::time_of(const Context& ctx, double StageTimes::*which) {
  return &ctx == &lane_ctx_ ? nullptr : &(times_.*which);
}

template <class T>
bool RankPipeline<T>::late_updates() const {
  return options_.schedule == StepSchedule::kSemiAsync && trainer_.steps_done() >= options_.warmup;
}

template <class T>
typename RankPipeline<T>::Flight& RankPipeline<T>::free_flight() {
  for (const std::unique_ptr<Flight>& each : slots_) {
    if (std::find(flights_.begin(), flights_.end(), each.get()) == flights_.end()) return *each;
  }
  detail::throw_error("a step was submitted while ", flights_.size(),
                      " are on their way; finish one first");
}

template <class T>
void RankPipeline<T>::submit(const Context& ctx, std::span<const Batch> batches, bool stop) {
  TGR_CHECK(!batches.empty() &&
                static_cast<std::int64_t>(batches.size()) <= trainer_.options().accumulate,
            "a step of ", batches.size(), " batches; planned for 1 to ",
            trainer_.options().accumulate);
  Flight& flight = free_flight();
  flight.parts = batches.size();
  flight.batches.resize(std::max(flight.batches.size(), batches.size()));
  flight.tokens = flight.predicting = 0;
  for (std::size_t b = 0; b < batches.size(); ++b) {
    const std::int64_t tokens = batches[b].num_tokens();
    TGR_CHECK(tokens <= trainer_.options().memory.capacity, "a batch of ", tokens, " tokens where ",
              trainer_.options().memory.capacity,
              " were planned for; raise train.tokens or lower train.batch");
    flight.batches[b] = batches[b];
    flight.tokens += tokens;
    marks_.mark(batches[b].offsets_view(), /*training=*/true);
    flight.predicting += marks_.predicting();
  }
  flight.step = trainer_.steps_done();
  flight.stop = stop;
  flight.row_squares = flight.own_row_squares = 0;
  flight.done = false;
  flights_.push_back(&flight);
  guarded([&] {
    if (options_.schedule == StepSchedule::kSerial) {
      prepare(ctx, behind_, flight);
      fetch(ctx, behind_, flight);
      whole_step(ctx, flight);
    } else if (held_ == nullptr) {
      prepare(ctx, behind_, flight);
      fetch(ctx, behind_, flight);
      held_ = &flight;
    } else {
      advance(ctx, &flight);
    }
  });
  trainer_.set_steps_done(flight.step + 1);
}

template <class T>
StepResult RankPipeline<T>::finish(const Context& ctx) {
  TGR_CHECK(!flights_.empty(), "no step was submitted; there is nothing to finish");
  if (!flights_.front()->done) guarded([&] { drain(ctx); });
  const StepResult result = flights_.front()->result;
  flights_.pop_front();
  return result;
}

template <class T>
void RankPipeline<T>::whole_step(const Context& ctx, Flight& flight) {
  compute(ctx, flight);
  return_rows(ctx, behind_, flight, flight.route);
  update_dense(ctx, flight);
  update_rows(ctx, flight, flight.route);
  end_step(flight);
}

// What a step has left for later.
template <class T>
void RankPipeline<T>::end_late(const Context& ctx, const Ends& ends, Flight& flight) {
  // Clipping has had all gradients returned before the dense update.
  if (trainer_.options().clip == 0) return_rows(ctx, ends, flight, *flight.left);
  update_rows(ctx, flight, *flight.left);
  end_step(flight);
}

// Computes the step whose rows are here while the lane ends the one before and prepares `next`.
template <class T>
void RankPipeline<T>::advance(const Context& ctx, Flight* next) {
  Flight& current = *std::exchange(held_, nullptr);
  Flight* const late = std::exchange(late_, nullptr);
  const bool exact = options_.schedule == StepSchedule::kExactPrefetch;
  const bool missed = late_updates();
  // Without clipping nobody waits for gradients of rows that the next step does not read.
  const bool parted = exact && trainer_.options().clip == 0;
  before_lane_.record(ctx);
  lane_->start([=, this, &current] {
    bind_thread(lane_ctx_);
    before_lane_.wait_on(lane_ctx_);
    if (late != nullptr) end_late(lane_ctx_, ahead_, *late);
    prepare(lane_ctx_, ahead_, *next);
    if (!exact && !missed) return synchronize(lane_ctx_);
    fetch(lane_ctx_, ahead_, *next);
    if (!exact) return synchronize(lane_ctx_);
    const StageScope scope(lane_ctx_.trace(), stages::kPlan, kAheadLane, nullptr);
    const embedding::Circles circles = ahead_.circles();
    table_.plan_refresh(lane_ctx_.host(), circles, next->route, current.route.touched,
                        next->refresh);
    if (parted) {
      table_.split(lane_ctx_.host(), circles, current.route, next->route.touched, current.urgent,
                   current.others);
    }
    synchronize(lane_ctx_);
  });
  compute(ctx, current);
  if (!missed && !parted) return_rows(ctx, behind_, current, current.route);
  if (missed && trainer_.options().clip > 0) return_rows(ctx, behind_, current, current.route);
  if (parted) current.own_row_squares = own_squares(ctx, current);
  update_dense(ctx, current);
  {
    const StageScope scope(ctx.trace(), stages::kJoin, kComputeLane, &times_.sparse_communication);
    lane_->join();  // what it fetches is read before the update
  }
  if (missed) {
    current.left = &current.route;
    late_ = &current;
  } else if (parted) {
    return_rows(ctx, behind_, current, current.urgent);
    update_rows(ctx, current, current.urgent);
    current.left = &current.others;
    late_ = &current;
  } else {
    update_rows(ctx, current, current.route);
    end_step(current);
  }
  if (exact) {
    const StageScope scope(ctx.trace(), stages::kRefresh, kComputeLane,
                           &times_.sparse_communication);
    const Rows<T> rows = first_rows<T>(next->slot.compact, next->route.num_ids);
    if (options_.device_rows) {
      next->exchange.template fetch_changed<T>(ctx, table_, behind_.device_circles(), next->refresh,
                                               next->route, rows);
    } else {
      table_.template fetch_changed<T>(ctx, behind_.circles(), next->refresh, next->route, rows);
    }
  } else if (!missed) {
    fetch(ctx, behind_, *next);
  }
  held_ = next;
}

// Ends all that is under way.
template <class T>
void RankPipeline<T>::drain(const Context& ctx) {
  if (late_ != nullptr) end_late(ctx, behind_, *std::exchange(late_, nullptr));
  if (held_ != nullptr) whole_step(ctx, *std::exchange(held_, nullptr));
}

template class RankPipeline<float>;
template class RankPipeline<bf16>;

}  // namespace turbogr::train
