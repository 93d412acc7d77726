#include "turbogr/embedding/sharded_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/ops/rows/embedding.h"
#include "turbogr/ops/rows/half_rows.h"

namespace turbogr::embedding {
namespace {

// Row gradients return in pieces of columns: enough for one's sums to hide behind another's way.
constexpr std::int64_t kPieceColumns = 32;
constexpr std::int64_t kMostPieces = 4;

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
          .pieces = std::clamp<std::int64_t>(table.width / kPieceColumns, 1, kMostPieces),
          .seed = table.seed,
          .scale = table.scale};
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
Route& ShardedRows<T>::TableRequest::route_of(Part part) {
  return part == Part::kAll ? route : part == Part::kNextReads ? next_reads : rest;
}

template <class T>
DeviceExchange& ShardedRows<T>::TableRequest::exchange_of(Part part) {
  return part == Part::kAll         ? exchange
         : part == Part::kNextReads ? next_reads_exchange
                                    : rest_exchange;
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
}

template <class T>
void ShardedRows<T>::initialise(const Context& ctx) {
  for (ShardedTable& table : tables_) table.initialise(ctx);
}

template <class T>
std::unique_ptr<RowRequest> ShardedRows<T>::make_request(const Context& ctx,
                                                         std::span<const std::int64_t> most) const {
  auto request = std::make_unique<Request>();
  request->tables.resize(tables_.size());
  for (std::size_t t = 0; t < tables_.size() && ctx.device() == Device::kCuda; ++t) {
    request->planned += exchange_bytes({.width = tables_[t].options().width}, most[t]);
  }
  return request;
}

template <class T>
void ShardedRows<T>::prepare(const Context& ctx, Lane lane, const StepIds& ids, RowRequest& given) {
  auto& request = static_cast<Request&>(given);
  request.ids = ids;
  request.factor = 1;
  if (layout_.replicas == ReplicaMode::kAverage) {
    std::vector<std::int64_t> group = {ids.predicting};
    ends(lane).groups.group->all_reduce(group, dist::Reduce::kSum);
    if (group[0] > 0) {
      request.factor = static_cast<double>(ids.all_predicting) / static_cast<double>(group[0]);
    }
  }
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    tables_[t].route(ctx.host(), ends(lane).communicators(), ids.tables[t].ids(),
                     request.tables[t].route);
  }
}

template <class T>
template <class Body>
void ShardedRows<T>::into(const Context& ctx, TableRequest& table, const StepRows<T>& out,
                          Body&& body) const {
  if (out.half.values.data == nullptr) return body(out.rows);
  const std::int64_t rows = out.half.values.rows, width = out.half.values.cols;
  if (table.wide.size() < rows * width) {
    table.wide = Tensor(DType::kF32, {rows + rows / 4, width}, ctx.device());
    const Device host = ctx.device() == Device::kCuda ? Device::kPinned : Device::kCpu;
    Tensor places(DType::kI64, {rows + rows / 4}, host);
    const auto all = places.view<std::int64_t, 1>();
    std::iota(all.data, all.data + all.shape[0], std::int64_t{0});
    table.places = Tensor(DType::kI64, places.shape(), ctx.device());
    copy_tensor(ctx, table.places, places);
  }
  const Rows<float> wide(reinterpret_cast<float*>(table.wide.data()), rows, width, width);
  body(wide);
  make_half(ctx, table, wide, out);
}

template <class T>
void ShardedRows<T>::make_half(const Context& ctx, TableRequest& table, Rows<const float> wide,
                               const StepRows<T>& out) const {
  const View<const std::int64_t, 1> places = {table.places.template view<std::int64_t, 1>().data,
                                              {wide.rows}};
  ops::gather_half_rows(ctx, wide, places, out.half);
  ops::gather_rows<float, T>(ctx, wide, {places.data, {out.rows.rows}}, out.rows);
}

template <class T>
void ShardedRows<T>::fetch(const Context& ctx, Lane lane, RowRequest& given,
                           std::span<const StepRows<T>> out) {
  auto& request = static_cast<Request&>(given);
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    TableRequest& table = request.tables[t];
    into(ctx, table, out[t], [&]<class Out>(Rows<Out> rows) {
      if (layout_.device_rows) {
        table.exchange.template fetch<Out>(ctx, tables_[t], ends(lane).device_communicators(),
                                           table.route, rows);
      } else {
        tables_[t].template fetch<Out>(ctx, ends(lane).communicators(), table.route, rows);
      }
    });
  }
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
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    TableRequest& table = request.tables[t];
    Route& route = table.route_of(part);
    View<const float, 1> sums;
    if (layout_.device_rows) {
      DeviceExchange& exchange = table.exchange_of(part);
      exchange.return_gradients(ctx, tables_[t], ends(lane).device_communicators(), route,
                                gradients[t]);
      const Rows<const float> rows = exchange.gradients();
      sums = {rows.data, {rows.rows * rows.cols}};
    } else {
      tables_[t].return_gradients(ctx, ends(lane).communicators(), route, gradients[t]);
      sums = {route.gradients.data(), {std::ssize(route.gradients)}};
    }
    ctx.workspace().reserve(ops::squared_sum_workspace_bytes(ctx, sums.shape[0]));
    ops::squared_sum(ctx, sums, squares + t);
    if (share != 1) ops::scale_value(ctx, share, squares + t);
  }
}

template <class T>
void ShardedRows<T>::update(const Context& ctx, Lane lane, RowRequest& given, Part part,
                            std::span<const AdamWSettings> settings, const ops::StepScale* scale) {
  auto& request = static_cast<Request&>(given);
  const int replicas = ends(lane).communicators().num_replicas();
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    TableRequest& table = request.tables[t];
    AdamWSettings own = settings[t];
    own.gradient_scale *= request.factor;
    if (layout_.device_rows) {
      table.exchange_of(part).update(ctx, tables_[t], own, scale, replicas);
    } else {
      tables_[t].update(ctx, table.route_of(part), own, scale, replicas);
    }
  }
  if (layout_.replicas != ReplicaMode::kAverage) return;
  replicas_differ_ = true;
  if ((request.ids.step + 1) % layout_.average_every == 0) average_replicas(ctx);
}

template <class T>
void ShardedRows<T>::plan_refresh(const Context& ctx, Lane lane, RowRequest& next_request,
                                  RowRequest& current_request, bool split) {
  auto& next = static_cast<Request&>(next_request);
  auto& current = static_cast<Request&>(current_request);
  const TableCommunicators communicators = ends(lane).communicators();
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    TableRequest& later = next.tables[t];
    TableRequest& now = current.tables[t];
    tables_[t].plan_refresh(ctx.host(), communicators, later.route, now.route.touched,
                            later.refresh);
    if (split) {
      tables_[t].split(ctx.host(), communicators, now.route, later.route.touched, now.next_reads,
                       now.rest);
    }
  }
}

template <class T>
void ShardedRows<T>::refresh(const Context& ctx, Lane lane, RowRequest& given,
                             std::span<const StepRows<T>> out) {
  auto& request = static_cast<Request&>(given);
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    TableRequest& table = request.tables[t];
    into(ctx, table, out[t], [&]<class Out>(Rows<Out> rows) {
      if (layout_.device_rows) {
        table.exchange.template fetch_changed<Out>(
            ctx, tables_[t], ends(lane).device_communicators(), table.refresh, table.route, rows);
      } else {
        tables_[t].template fetch_changed<Out>(ctx, ends(lane).communicators(), table.refresh,
                                               table.route, rows);
      }
    });
  }
}

// Once, however many ask: the mean of equal numbers may differ from them in its last digit.
template <class T>
void ShardedRows<T>::average_replicas(const Context& ctx) {
  if (!std::exchange(replicas_differ_, false)) return;
  for (ShardedTable& table : tables_) table.average(ctx, ends(Lane::kThis).communicators());
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
  ShardedTable& from = tables_[table];
  from.route(host, ends(Lane::kThis).communicators(), {unique.data(), {distinct}},
             gathering_.route);
  if (gathered_.size() < distinct * out.cols) {
    gathered_ = Tensor(dtype_of<T>(), {distinct, out.cols}, ctx.device());
  }
  const Rows<T> rows(reinterpret_cast<T*>(gathered_.data()), distinct, out.cols, out.cols);
  if (layout_.device_rows) {
    gathering_.exchange.template fetch<T>(ctx, from, ends(Lane::kThis).device_communicators(),
                                          gathering_.route, rows);
  } else {
    from.template fetch<T>(ctx, ends(Lane::kThis).communicators(), gathering_.route, rows);
  }
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
