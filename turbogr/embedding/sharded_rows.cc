#include "turbogr/embedding/sharded_rows.h"

#include <numeric>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/ops/rows/embedding.h"
#include "turbogr/ops/rows/half_rows.h"

namespace turbogr::embedding {
namespace {

ShardedOptions options_of(const TableOptions& table, const RankLayout& layout, Device device) {
  return {.rows = table.rows,
          .width = table.width,
          .optimiser = table.optimiser,
          .dtype = table.dtype,
          .placement = layout.placement,
          .replicas = layout.replicas,
          .row_wire = layout.row_wire,
          .gradient_wire = layout.gradient_wire,
          .device = device,
          .seed = table.seed,
          .start = table.start};
}

}  // namespace

std::size_t shard_bytes(const TableOptions& table, const RankLayout& layout) {
  const Sharding sharding(table.rows, layout.topology.group_size, layout.placement);
  const auto rows = static_cast<std::size_t>(sharding.rows_of(0));
  const auto width = static_cast<std::size_t>(table.width);
  std::size_t row = width * size_of(table.dtype);
  if (table.optimiser == SparseOptimiser::kAdamW) row += 2 * width * sizeof(float);
  if (table.optimiser == SparseOptimiser::kAdaGrad) row += sizeof(float);
  if (table.half_copy) row += width * sizeof(f16) + sizeof(float);
  return rows * row;
}

std::size_t exchange_bytes(const TableOptions& table, std::int64_t most) {
  return 4 * static_cast<std::size_t>(most * table.width) * sizeof(float);
}

template <class T>
typename ShardedRows<T>::Ends ShardedRows<T>::make_ends(const Context& ctx,
                                                        dist::Communicator& world) const {
  Ends ends = {dist::make_sparse_groups(world, layout_.topology), nullptr, nullptr};
  if (!layout_.device_rows) return ends;
  const auto reach = [&](dist::Communicator& host) {
    return dist::make_device_communicator(
        layout_.link, host.split(0, host.rank(), host.name() + " (rows)"), ctx, layout_.wait);
  };
  ends.device_group = reach(*ends.groups.group);
  ends.device_replicas = reach(*ends.groups.replicas);
  return ends;
}

template <class T>
ShardedRows<T>::ShardedRows(const Context& ctx, const Context& next, dist::Communicator& world,
                            const std::vector<TableOptions>& tables, Device memory,
                            const RankLayout& layout)
    : layout_(layout) {
  if (ctx.device() == Device::kCuda) layout_.device_rows = true;
  for (const TableOptions& table : tables) {
    TGR_CHECK(table.dtype == DType::kF32 || layout_.replicas == ReplicaMode::kExact,
              "replicas of a table in ", name_of(table.dtype),
              " cannot be averaged: the mean would lose what each has learnt; use dist.replicas = "
              "\"exact\", or a table in f32");
    TGR_CHECK(table.dtype == DType::kF32 || memory != Device::kPinned, "a table in ",
              name_of(table.dtype),
              " in the host's memory; use embedding.dtype = \"f32\", or "
              "embedding.memory = \"device\"");
  }
  TGR_CHECK(layout_.replicas == ReplicaMode::kExact || layout_.average_every >= 1,
            "replicas averaged every ", layout_.average_every, " steps; use at least 1");
  ends_[static_cast<std::size_t>(Lane::kNext)] = make_ends(next, world);
  ends_[static_cast<std::size_t>(Lane::kThis)] = make_ends(ctx, world);
  const dist::Communicator& group = *ends(Lane::kThis).groups.group;
  for (const TableOptions& table : tables) {
    tables_.emplace_back(options_of(table, layout_, memory), group.rank(), group.size());
  }
  if (ctx.device() == Device::kCpu) pieces_ = gradient_pieces(tables_);
}

template <class T>
void ShardedRows<T>::initialise(const Context& ctx) {
  for (ShardedTable& table : tables_) table.initialise(ctx);
}

template <class T>
std::unique_ptr<RowRequest> ShardedRows<T>::make_request(const Context& ctx,
                                                         std::span<const std::int64_t> most) const {
  auto request = std::make_unique<Request>();
  request->wide.resize(tables_.size());
  for (std::size_t t = 0; t < tables_.size() && ctx.device() == Device::kCuda; ++t) {
    request->planned += exchange_bytes({.width = tables_[t].options().width}, most[t]);
  }
  return request;
}

template <class T>
void ShardedRows<T>::prepare(const Context& ctx, Lane lane, const StepIds& ids, RowRequest& given) {
  auto& request = static_cast<Request&>(given);
  request.step = ids.step;
  request.factor = 1;
  if (layout_.replicas == ReplicaMode::kAverage) {
    std::int64_t predicting = ids.predicting;
    ends(lane).groups.group->all_reduce({&predicting, 1}, dist::Reduce::kSum);
    if (predicting > 0) {
      request.factor = static_cast<double>(ids.all_predicting) / static_cast<double>(predicting);
    }
  }
  request.ids.clear();
  for (const TouchedRows& table : ids.tables) request.ids.push_back(table.ids());
  route_ids(ctx.host(), ends(lane).hosts(), tables_, request.ids, request.all.route);
}

template <class T>
void ShardedRows<T>::take_rows(const Context& ctx, Request& request, std::size_t table,
                               const StepRows<T>& out) const {
  const RowExchange& exchange = request.all.exchange;
  if (out.half.values.data == nullptr) return exchange.take_rows<T>(ctx, table, out.rows);
  WideRows& wide = request.wide[table];
  const std::int64_t rows = out.half.values.rows, width = out.half.values.cols;
  if (wide.rows.size() < rows * width) {
    wide.rows = Tensor(DType::kF32, {rows + rows / 4, width}, ctx.device());
    const Device host = ctx.device() == Device::kCuda ? Device::kPinned : Device::kCpu;
    Tensor places(DType::kI64, {rows + rows / 4}, host);
    const auto all = places.view<std::int64_t, 1>();
    std::iota(all.data, all.data + all.shape[0], std::int64_t{0});
    wide.places = Tensor(DType::kI64, places.shape(), ctx.device());
    copy_tensor(ctx, wide.places, places);
  }
  const Rows<float> taken(reinterpret_cast<float*>(wide.rows.data()), rows, width, width);
  exchange.take_rows<float>(ctx, table, taken);
  const std::int64_t* places = wide.places.template view<std::int64_t, 1>().data;
  ops::gather_half_rows(ctx, taken, {places, {rows}}, out.half);
  ops::gather_rows<float, T>(ctx, taken, {places, {out.rows.rows}}, out.rows);
}

template <class T>
void ShardedRows<T>::fetch(const Context& ctx, Lane lane, RowRequest& given,
                           std::span<const StepRows<T>> out) {
  auto& request = static_cast<Request&>(given);
  request.all.exchange.fetch(ctx, tables_, ends(lane).rows(), request.all.route);
  for (std::size_t t = 0; t < tables_.size(); ++t) take_rows(ctx, request, t, out[t]);
}

template <class T>
void ShardedRows<T>::return_gradients(const Context& ctx, Lane lane, RowRequest& given, Part part,
                                      std::span<const Rows<const float>> gradients,
                                      double* squares) {
  auto& request = static_cast<Request&>(given);
  const dist::Communicator& replicas = *ends(lane).groups.replicas;
  // Exact replicas all have the same sums: those of the first count.
  const bool average = layout_.replicas == ReplicaMode::kAverage;
  const double share = average                ? request.factor * request.factor / replicas.size()
                       : replicas.rank() == 0 ? 1.0
                                              : 0.0;
  PartRequest& returned = request.of(part);
  returned.exchange.return_gradients(ctx, tables_, ends(lane).rows(), returned.route, gradients,
                                     pieces_);
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const Rows<const float> rows = returned.exchange.gradients(t);
    const View<const float, 1> sums = {rows.data, {rows.rows * rows.cols}};
    ctx.workspace().reserve(ops::squared_sum_workspace_bytes(ctx, sums.shape[0]));
    ops::squared_sum(ctx, sums, squares + t);
    if (share != 1) ops::scale_value(ctx, share, squares + t);
  }
}

template <class T>
void ShardedRows<T>::update(const Context& ctx, Lane lane, RowRequest& given, Part part,
                            std::span<const AdamWSettings> settings, const ops::StepScale* scale) {
  auto& request = static_cast<Request&>(given);
  const RowExchange& exchange = request.of(part).exchange;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    AdamWSettings own = settings[t];
    own.gradient_scale *= request.factor;
    tables_[t].update(ctx, exchange.touched(t), exchange.gradients(t), own, scale,
                      ends(lane).hosts().num_replicas());
  }
  if (layout_.replicas != ReplicaMode::kAverage) return;
  replicas_differ_ = true;
  if ((request.step + 1) % layout_.average_every == 0) average_replicas(ctx);
}

template <class T>
void ShardedRows<T>::plan_refresh(const Context& ctx, Lane lane, RowRequest& next_request,
                                  RowRequest& current_request, bool split) {
  auto& next = static_cast<Request&>(next_request);
  auto& current = static_cast<Request&>(current_request);
  const TableCommunicators hosts = ends(lane).hosts();
  embedding::plan_refresh(hosts, tables_, next.all.route, current.all.route, next.refresh);
  if (!split) return;
  split_route(ctx.host(), hosts, tables_, current.all.route, next.all.route,
              current.next_reads.route, current.rest.route);
}

template <class T>
void ShardedRows<T>::refresh(const Context& ctx, Lane lane, RowRequest& given,
                             std::span<const StepRows<T>> out) {
  auto& request = static_cast<Request&>(given);
  request.all.exchange.fetch_changed(ctx, tables_, ends(lane).rows(), request.all.route,
                                     request.refresh);
  for (std::size_t t = 0; t < tables_.size(); ++t) take_rows(ctx, request, t, out[t]);
}

// Once, however many ask: the mean of equal numbers may differ from them in its last digit.
template <class T>
void ShardedRows<T>::average_replicas(const Context& ctx) {
  if (!std::exchange(replicas_differ_, false)) return;
  for (ShardedTable& table : tables_) table.average(ctx, ends(Lane::kThis).hosts());
}

template <class T>
PlannedBytes ShardedRows<T>::bytes() const {
  PlannedBytes bytes;
  for (const ShardedTable& table : tables_) bytes.add(table.options().device, table.bytes());
  return bytes;
}

template <class T>
void ShardedRows<T>::gather(const Context& ctx, std::size_t table, View<const std::int64_t, 1> ids,
                            Rows<T> out) {
  const Context& host = ctx.host();
  const std::int64_t count = ids.shape[0];
  std::vector<std::int64_t> unique(static_cast<std::size_t>(count)),
      offsets(static_cast<std::size_t>(count) + 1);
  std::vector<std::int32_t> positions(static_cast<std::size_t>(count)),
      inverse(static_cast<std::size_t>(count));
  host.workspace().reserve(ops::dedup_ids_workspace_bytes(count));
  const std::int64_t distinct = ops::dedup_ids(host, ids,
                                               {{unique.data(), {count}},
                                                {offsets.data(), {count + 1}},
                                                {positions.data(), {count}},
                                                {inverse.data(), {count}}});
  const std::span<ShardedTable> from(&tables_[table], 1);
  const View<const std::int64_t, 1> wanted = {unique.data(), {distinct}};
  route_ids(host, ends(Lane::kThis).hosts(), from, {&wanted, 1}, gathering_.route);
  if (gathered_.size() < distinct * out.cols) {
    gathered_ = Tensor(dtype_of<T>(), {distinct, out.cols}, ctx.device());
  }
  const Rows<T> rows(reinterpret_cast<T*>(gathered_.data()), distinct, out.cols, out.cols);
  gathering_.exchange.fetch(ctx, from, ends(Lane::kThis).rows(), gathering_.route);
  gathering_.exchange.template take_rows<T>(ctx, 0, rows);
  gather_feed_.begin(ctx, Feed::room<std::int32_t>(inverse.size()));
  const View<const std::int32_t, 1> places =
      gather_feed_.put(ctx, View<const std::int32_t, 1>{inverse.data(), {count}});
  ops::gather_rows<T, T, std::int32_t>(ctx, rows, places, out);
  gather_feed_.end(ctx);
  synchronize(ctx);  // the host's lists go
}

template class ShardedRows<float>;
template class ShardedRows<bf16>;

}  // namespace turbogr::embedding
