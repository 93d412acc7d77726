#include "turbogr/train/rank_pipeline.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/trace.h"
#include "turbogr/dist/device_communicator.h"
#include "turbogr/model/buffers.h"
#include "turbogr/ops/update.h"
#include "turbogr/train/stages.h"

namespace turbogr::train {
namespace {

using data::Batch;
using model::first_rows;

// Row gradients return in pieces of columns: enough for one's sums to hide behind another's way.
constexpr std::int64_t kPieceColumns = 32;
constexpr std::int64_t kMostPieces = 4;

// A trace event, and its length added to `seconds`, when there is a place for it.
class StageScope {
 public:
  StageScope(Trace* trace, const Stage& stage, int lane, double* seconds)
      : scope_(trace, stage.name, lane), seconds_(seconds), begin_ns_(Trace::now_ns()) {}
  ~StageScope() {
    if (seconds_ != nullptr) {
      *seconds_ += static_cast<double>(Trace::now_ns() - begin_ns_) * 1e-9;
    }
  }
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;

 private:
  TraceScope scope_;
  double* seconds_;
  std::int64_t begin_ns_;
};

// Places in a flight's numbers.
constexpr std::int64_t kDenseScale = 0;  // a StepScale
constexpr std::int64_t kRowScale = 4;    // another
constexpr std::int64_t kOtherRowScale = 8;
constexpr std::int64_t kDenseSquares = 12;
constexpr std::int64_t kRowSquares = 13;
constexpr std::int64_t kLossSums = 14;  // of each batch

double* numbers_at(Tensor& numbers, std::int64_t place) {
  return numbers.view<double, 1>().data + place;
}

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

// The distinct positives of all ranks, which in-batch negatives are drawn from, and how many there
// were.
template <class T>
typename RetrievalTrainer<T>::Positives RankPipeline<T>::gather_positives(const Ends& ends,
                                                                          Flight& flight) {
  std::vector<std::int64_t> own;
  for (std::size_t b = 0; b < flight.parts; ++b) {
    const std::vector<std::int64_t>& targets = flight.batches[b].targets;
    own.insert(own.end(), targets.begin(), targets.end());
  }
  struct Amount {
    std::int64_t distinct, count;
  };
  Amount amount = {0, std::ssize(own)};
  std::sort(own.begin(), own.end());
  own.erase(std::unique(own.begin(), own.end()), own.end());
  amount.distinct = std::ssize(own);
  std::vector<std::int64_t> bytes;
  std::int64_t distinct = 0, count = 0;
  for (const Amount& each : ends.world->all_gather_value(amount)) {
    bytes.push_back(each.distinct * static_cast<std::int64_t>(sizeof(std::int64_t)));
    distinct += each.distinct;
    count += each.count;
  }
  flight.positives.resize(static_cast<std::size_t>(distinct));
  ends.world->all_gather(own.data(), {flight.positives.data(), bytes});
  return {{flight.positives.data(), {distinct}}, count};
}

template <class T>
void RankPipeline<T>::prepare(const Context& ctx, const Ends& ends, Flight& flight) {
  const std::span<const Batch> batches(flight.batches.data(), flight.parts);
  using Positives = typename RetrievalTrainer<T>::Positives;
  std::optional<Positives> positives;
  if (trainer_.needs_positives()) {
    const StageScope scope(ctx.trace(), stages::kPositives, lane_of(ctx),
                           time_of(ctx, &StageTimes::sparse_communication));
    positives = gather_positives(ends, flight);
  }
  {
    const StageScope scope(ctx.trace(), stages::kDraw, lane_of(ctx),
                           time_of(ctx, &StageTimes::compute));
    trainer_.draw(ctx.host(), batches, flight.step, flight.slot, positives);
  }
  const StageScope scope(ctx.trace(), stages::kIds, lane_of(ctx),
                         time_of(ctx, &StageTimes::sparse_communication));
  std::vector<std::int64_t> sums = {flight.tokens, flight.predicting, flight.stop ? 1 : 0};
  ends.world->all_reduce(sums, dist::Reduce::kSum);
  flight.all_tokens = sums[0];
  flight.all_predicting = sums[1];
  flight.stop = sums[2] > 0;
  std::vector<std::int64_t> group = {flight.predicting};
  if (options_.replicas == embedding::ReplicaMode::kAverage) {
    ends.groups.group->all_reduce(group, dist::Reduce::kSum);
  }
  flight.group_predicting = group[0];
  TGR_CHECK(flight.all_tokens > 0, "a step without tokens on any rank");
  table_.route(ctx.host(), ends.circles(), flight.slot.touched.ids(), flight.route);
}

template <class T>
void RankPipeline<T>::fetch(const Context& ctx, const Ends& ends, Flight& flight) {
  const StageScope scope(ctx.trace(), stages::kFetch, lane_of(ctx),
                         time_of(ctx, &StageTimes::sparse_communication));
  const Rows<T> rows = first_rows<T>(flight.slot.compact, flight.route.num_ids);
  if (options_.device_rows) {
    flight.exchange.template fetch<T>(ctx, table_, ends.device_circles(), flight.route, rows);
  } else {
    table_.template fetch<T>(ctx, ends.circles(), flight.route, rows);
  }
}

// Gradients of this rank's share, dense ones summed over ranks while they come.
template <class T>
void RankPipeline<T>::compute(const Context& ctx, Flight& flight) {
  const StageScope scope(ctx.trace(), stages::kCompute, kComputeLane, &times_.compute);
  stop_asked_ = stop_asked_ || flight.stop;
  trainer_.compute(ctx, {flight.batches.data(), flight.parts}, flight.step,
                   1.0 / static_cast<double>(flight.all_predicting), flight.slot,
                   [&](std::int64_t layers) {
                     if (options_.schedule == StepSchedule::kSerial) return;
                     reducer_->ready(blocks_by_layers_[static_cast<std::size_t>(layers)]);
                   });
  // The stages that follow read the gradients on other streams, and their time is their own.
  synchronize(ctx);
}

// Where the device reads the scale. A place is sent from once a step.
template <class T>
const ops::StepScale* RankPipeline<T>::send_scale(const Context& ctx, Flight& flight,
                                                  std::int64_t at, const ops::StepScale& scale) {
  *reinterpret_cast<ops::StepScale*>(numbers_at(flight.host_numbers, at)) = scale;
  copy_bytes(ctx, numbers_at(flight.numbers, at), numbers_at(flight.host_numbers, at),
             sizeof scale);
  return reinterpret_cast<const ops::StepScale*>(numbers_at(flight.numbers, at));
}

template <class T>
void RankPipeline<T>::update_dense(const Context& ctx, Flight& flight) {
  {
    const StageScope scope(ctx.trace(), stages::kDenseSums, kComputeLane,
                           &times_.dense_communication);
    reducer_->finish();
    double* const losses = numbers_at(flight.host_numbers, kLossSums);
    copy_bytes(ctx, losses, trainer_.loss_sums().data, flight.parts * sizeof(double));
    synchronize(ctx);
    std::vector<double> sums = {0, flight.own_row_squares};
    for (std::size_t part = 0; part < flight.parts; ++part) sums[0] += losses[part];
    behind_.world->all_reduce(sums, dist::Reduce::kSum);
    flight.loss = sums[0] / static_cast<double>(flight.all_predicting);
    flight.own_row_squares = sums[1];
  }
  const StageScope scope(ctx.trace(), stages::kDenseUpdate, kComputeLane, &times_.compute);
  ops::squared_sum(ctx, trainer_.slices(), numbers_at(flight.numbers, kDenseSquares));
  double* const own_squares = numbers_at(flight.host_numbers, kDenseSquares);
  copy_bytes(ctx, own_squares, numbers_at(flight.numbers, kDenseSquares), sizeof(double));
  synchronize(ctx);
  flight.dense_squares = *own_squares;
  const double squares = flight.dense_squares + flight.row_squares;
  const double norm = std::sqrt(squares);
  const double clip = trainer_.options().clip;
  flight.scale = {
      .scale = clip > 0 && norm > clip ? clip / norm : 1.0,
      .finite =
          std::isfinite(flight.loss) && std::isfinite(squares + flight.own_row_squares) ? 1.0 : 0.0,
      .norm = norm,
      .loss = flight.loss};
  flight.result.rate =
      trainer_.update_dense(ctx, flight.step, send_scale(ctx, flight, kDenseScale, flight.scale));
}

// Of the row gradients: a group that goes its own way divides by its own tokens.
template <class T>
double RankPipeline<T>::row_factor(const Flight& flight) const {
  if (options_.replicas == embedding::ReplicaMode::kExact || flight.group_predicting == 0) {
    return 1;
  }
  return static_cast<double>(flight.all_predicting) / static_cast<double>(flight.group_predicting);
}

// The sum of squares, on the host.
template <class T>
double RankPipeline<T>::squares_of(const Context& ctx, View<const float, 1> values,
                                   Flight& flight) {
  double* const sum = numbers_at(flight.numbers, kRowSquares);
  double* const on_host = numbers_at(flight.host_numbers, kRowSquares);
  ctx.workspace().reserve(ops::squared_sum_workspace_bytes(ctx, values.shape[0]));
  ops::squared_sum(ctx, values, sum);
  copy_bytes(ctx, on_host, sum, sizeof(double));
  synchronize(ctx);
  return *on_host;
}

template <class T>
embedding::DeviceExchange& RankPipeline<T>::exchange_of(Flight& flight,
                                                        const embedding::Route& route) const {
  return &route == &flight.urgent   ? flight.urgent_exchange
         : &route == &flight.others ? flight.others_exchange
                                    : flight.exchange;
}

// Row gradients, summed at their owners, and the square of their norm, known to all. `route`: the
// flight's, or part of it.
template <class T>
void RankPipeline<T>::return_rows(const Context& ctx, const Ends& ends, Flight& flight,
                                  embedding::Route& route) {
  const StageScope scope(ctx.trace(), stages::kReturn, lane_of(ctx),
                         time_of(ctx, &StageTimes::sparse_communication));
  const Rows<float> gradient = first_rows<float>(flight.slot.gradient, flight.route.num_ids);
  View<const float, 1> sums;
  if (options_.device_rows) {
    embedding::DeviceExchange& exchange = exchange_of(flight, route);
    exchange.return_gradients(ctx, table_, ends.device_circles(), route, gradient);
    const Rows<const float> rows = exchange.gradients();
    sums = {rows.data, {rows.rows * rows.cols}};
  } else {
    table_.return_gradients(ctx, ends.circles(), route, gradient);
    sums = {route.gradients.data(), {std::ssize(route.gradients)}};
  }
  std::vector<double> squares = {squares_of(ctx, sums, flight) * row_factor(flight) *
                                 row_factor(flight)};
  ends.groups.group->all_reduce(squares, dist::Reduce::kSum);
  if (options_.replicas == embedding::ReplicaMode::kAverage) {
    // One number for all, or ranks would clip differently: the mean over the groups.
    ends.groups.replicas->all_reduce(squares, dist::Reduce::kSum);
    squares[0] /= ends.groups.replicas->size();
  }
  flight.row_squares += squares[0];
}

template <class T>
void RankPipeline<T>::update_rows(const Context& ctx, Flight& flight,
                                  const embedding::Route& route) {
  const StageScope scope(ctx.trace(), stages::kRowUpdate, lane_of(ctx),
                         time_of(ctx, &StageTimes::compute));
  if (!std::isfinite(flight.row_squares)) flight.scale.finite = 0;
  ops::StepScale scale = flight.scale;
  scale.scale *= row_factor(flight);
  const AdamWSettings settings = trainer_.table_settings(flight.step);
  const int replicas = behind_.circles().num_replicas();
  if (options_.device_rows) {
    // What was sent for the urgent rows may still be on its way.
    const std::int64_t place = &route == &flight.others ? kOtherRowScale : kRowScale;
    exchange_of(flight, route)
        .update(ctx, table_, settings, send_scale(ctx, flight, place, scale), replicas);
  } else {
    table_.update(ctx, route, settings, &scale, replicas);
  }
  if (options_.replicas == embedding::ReplicaMode::kAverage &&
      (flight.step + 1) % options_.average_every == 0) {
    table_.average(ctx, behind_.circles());
  }
}

template <class T>
void RankPipeline<T>::end_step(Flight& flight) {
  flight.result.step = flight.step + 1;
  flight.result.tokens = flight.all_tokens;
  flight.result.predicting = flight.all_predicting;
  flight.result.loss = flight.loss;
  flight.result.gradient_norm = std::sqrt(flight.dense_squares + flight.row_squares);
  flight.result.finite = flight.scale.finite != 0;
  if (!flight.result.finite) flight.result.rate = 0;
  flight.done = true;
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

// Of this rank's row gradients: not finite when one of them is not.
template <class T>
double RankPipeline<T>::own_squares(const Context& ctx, Flight& flight) {
  const Rows<float> gradient = first_rows<float>(flight.slot.gradient, flight.route.num_ids);
  return squares_of(ctx, {gradient.data, {gradient.rows * gradient.cols}}, flight);
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
