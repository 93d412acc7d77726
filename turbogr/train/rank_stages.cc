// The stages of a step over ranks, one function each; rank_pipeline.cc says when they run.
#include "turbogr/train/rank_stages.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/model/buffers.h"
#include "turbogr/ops/update.h"
#include "turbogr/train/rank_pipeline.h"

namespace turbogr::train {

namespace {

using data::Batch;
using model::first_rows;

}  // namespace

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
  if (options_.replicas != embedding::ReplicaMode::kAverage) return;
  replicas_differ_ = true;
  if ((flight.step + 1) % options_.average_every == 0) average_replicas(ctx);
}

// Once, however many ask: the mean of equal numbers may differ from them in its last digit.
template <class T>
void RankPipeline<T>::average_replicas(const Context& ctx) {
  if (std::exchange(replicas_differ_, false)) table_.average(ctx, behind_.circles());
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

// Of this rank's row gradients: not finite when one of them is not.
template <class T>
double RankPipeline<T>::own_squares(const Context& ctx, Flight& flight) {
  const Rows<float> gradient = first_rows<float>(flight.slot.gradient, flight.route.num_ids);
  return squares_of(ctx, {gradient.data, {gradient.rows * gradient.cols}}, flight);
}

template class RankPipeline<float>;
template class RankPipeline<bf16>;

}  // namespace turbogr::train
