#include "turbogr/embedding/sharded_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/embedding/counts.h"
#include "turbogr/embedding/mix.h"
#include "turbogr/embedding/row_groups.h"
#include "turbogr/embedding/wire.h"
#include "turbogr/ops/rows/embedding.h"
#include "turbogr/ops/rows/random_rows.h"

namespace turbogr::embedding {
ReplicaMode replica_mode_from_name(std::string_view name) {
  if (name == "exact") return ReplicaMode::kExact;
  TGR_CHECK(name == "average", "unknown replica mode '", name, "'; use exact or average");
  return ReplicaMode::kAverage;
}

std::size_t Route::bytes() const {
  return sizeof(std::int64_t) *
             (asked_of.capacity() + asked_by.capacity() + requests.capacity() + rows.capacity() +
              group_offsets.capacity() + touched.capacity() + replica_counts.capacity() +
              touched_offsets.capacity() + sending_ids.capacity() + all_rows.capacity()) +
         sizeof(std::int32_t) * (order.capacity() + group_requests.capacity() +
                                 touched_positions.capacity() + inverse.capacity()) +
         sizeof(float) * (gradients.capacity() + arrived.capacity() + own_sums.capacity()) +
         sizeof(std::uint32_t) * (own_numbers.capacity() + all_numbers.capacity()) +
         sending.capacity() + receiving.capacity() + replica_sums.capacity();
}

ShardedTable::ShardedTable(const ShardedOptions& options, int shard, int shards)
    : options_(options),
      sharding_(options.dynamic ? 0 : options.rows, shards, options.placement),
      shard_(shard) {
  TGR_CHECK(shard >= 0 && shard < shards, "shard ", shard, " of ", shards);
  for (const DType wire : {options.row_wire, options.gradient_wire}) {
    TGR_CHECK(wire == DType::kF32 || wire == DType::kBf16 || wire == DType::kF16,
              "rows cannot travel as ", name_of(wire), "; use f32, bf16 or f16");
  }
  TGR_CHECK(
      options.gradient_wire != DType::kF16,
      "gradients cannot travel as f16, which small ones would leave as zero; use f32 or bf16");
  TGR_CHECK(!options.dynamic || options.device == Device::kCpu,
            "a dynamic table on a GPU: rows are made by the host; use device = \"cpu\"");
  TGR_CHECK(options.pieces >= 1 && options.pieces <= options.width, "gradients of width ",
            options.width, " in ", options.pieces, " pieces");
  if (options.dynamic) {
    dynamic_ = std::make_unique<DynamicTable>(DynamicOptions{.width = options.width,
                                                             .optimiser = options.optimiser,
                                                             .seed = options.seed,
                                                             .scale = options.scale});
  } else {
    TGR_CHECK(sharding_.rows_of(shard) <= std::numeric_limits<std::uint32_t>::max(), "a shard of ",
              sharding_.rows_of(shard), " rows; ", std::numeric_limits<std::uint32_t>::max(),
              " is the most: use more ranks a group");
    dense_ = std::make_unique<ItemTable>(sharding_.rows_of(shard), options.width, options.optimiser,
                                         options.device, options.dtype);
    dense_->set_keys(sharding_.keys_of(shard, options.seed));
  }
}

void ShardedTable::initialise(const Context& ctx) {
  if (dynamic_) return;  // rows are made when they are first asked for
  const bool on_host = options_.device == Device::kCpu;
  Tensor made;
  if (!on_host) made = Tensor(options_.dtype, dense_->weight_tensor().shape());
  Tensor& rows = on_host ? dense_->weight_tensor() : made;
  const auto width = static_cast<std::size_t>(options_.width);
  const std::size_t row_bytes = width * size_of(options_.dtype);
  parallel_ranges(ctx.host().pool(), dense_->rows(), kRowsAtATime,
                  [&](std::int64_t begin, std::int64_t end, int) {
                    std::vector<float> values(width);
                    for (std::int64_t row = begin; row < end; ++row) {
                      ops::truncated_normal_row(options_.seed, sharding_.id_of(shard_, row),
                                                options_.scale, options_.width, values.data());
                      to_wire(options_.dtype, values.data(), options_.width,
                              rows.data() + static_cast<std::size_t>(row) * row_bytes);
                    }
                  });
  if (!on_host) copy_tensor(ctx, dense_->weight_tensor(), made);
}

int ShardedTable::owner_of(std::int64_t id) const {
  if (!dynamic_) return sharding_.shard_of(id);
  return static_cast<int>(mixed(static_cast<std::uint64_t>(id) ^ 0x9e3779b97f4a7c15u) %
                          static_cast<std::uint64_t>(sharding_.shards()));
}

void ShardedTable::own_rows(const Context& ctx, std::vector<std::int64_t>& ids) {
  const auto count = static_cast<std::int64_t>(ids.size());
  if (dynamic_) {
    dynamic_->find_or_add(ctx, {ids.data(), {count}}, {ids.data(), {count}});
    return;
  }
  for (std::int64_t& id : ids) id = sharding_.row_of(id);
}

void ShardedTable::route(const Context& ctx, const TableCommunicators& communicators,
                         View<const std::int64_t, 1> ids, Route& route) {
  dist::Communicator& group = *communicators.group;
  TGR_CHECK(group.size() == sharding_.shards() && group.rank() == shard_, "rank ", group.rank(),
            " of ", group.size(), " asks a table whose shard here is ", shard_, " of ",
            sharding_.shards());
  const std::int64_t count = ids.shape[0];
  route.num_ids = route.num_gradients = count;
  route.asked_of.assign(static_cast<std::size_t>(group.size()), 0);
  for (std::int64_t i = 0; i < count; ++i) {
    TGR_CHECK(options_.dynamic || (ids(i) >= 0 && ids(i) < options_.rows), "id ", ids(i),
              " at position ", i, "; the table has ", options_.rows, " rows");
    ++route.asked_of[static_cast<std::size_t>(owner_of(ids(i)))];
  }
  std::vector<std::int64_t> next(route.asked_of.size(), 0);
  std::exclusive_scan(route.asked_of.begin(), route.asked_of.end(), next.begin(), std::int64_t{0});
  route.order.resize(static_cast<std::size_t>(count));
  route.sending_ids.resize(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(next[static_cast<std::size_t>(owner_of(ids(i)))]++);
    route.order[at] = static_cast<std::int32_t>(i);
    route.sending_ids[at] = ids(i);
  }
  exchange_counts(group, route.asked_of, route.asked_by);
  exchange_values(group, route.sending_ids, route.asked_of, route.requests, route.asked_by);
  own_rows(ctx, route.requests);
  group_equal(ctx, route.requests, route.rows, route.group_offsets, route.group_requests,
              route.inverse);
  join_replicas(ctx, communicators, route);
}

// Every replica learns which rows the others touch.
void ShardedTable::join_replicas(const Context& ctx, const TableCommunicators& communicators,
                                 Route& route) const {
  if (communicators.num_replicas() == 1 || options_.replicas == ReplicaMode::kAverage) {
    route.touched = route.rows;
    route.replica_counts.assign(1, static_cast<std::int64_t>(route.rows.size()));
    return;
  }
  TGR_CHECK(!dynamic_,
            "exact replicas of a dynamic table: rows are numbered as they arrive, so "
            "replicas cannot name them to each other; use one group or mode average");
  dist::Communicator& replicas = *communicators.replicas;
  route.replica_counts = replicas.all_gather_value(static_cast<std::int64_t>(route.rows.size()));
  // A shard's rows have numbers of four bytes.
  route.own_numbers.assign(route.rows.begin(), route.rows.end());
  route.all_numbers.resize(static_cast<std::size_t>(sum_of(route.replica_counts)));
  replicas.all_gather(
      route.own_numbers.data(),
      {route.all_numbers.data(), times(route.replica_counts, sizeof(std::uint32_t))});
  route.all_rows.assign(route.all_numbers.begin(), route.all_numbers.end());
  group_equal(ctx, route.all_rows, route.touched, route.touched_offsets, route.touched_positions,
              route.inverse);
}

void ShardedTable::pack(const Context& ctx, Route& route) const {
  const std::size_t row_bytes =
      static_cast<std::size_t>(options_.width) * size_of(options_.row_wire);
  route.sending.resize(route.requests.size() * row_bytes);
  parallel_ranges(ctx.pool(), static_cast<std::int64_t>(route.requests.size()), kRowsAtATime,
                  [&](std::int64_t begin, std::int64_t end, int) {
                    for (auto i = static_cast<std::size_t>(begin);
                         i < static_cast<std::size_t>(end); ++i) {
                      row_to_wire(route.requests[i], route.sending.data() + i * row_bytes);
                    }
                  });
}

template <class T>
void ShardedTable::exchange(const Context& ctx, const TableCommunicators& communicators,
                            Route& route, Rows<T> out) {
  TGR_CHECK(out.rows == route.num_ids && out.cols == options_.width, "rows wanted in [", out.rows,
            ", ", out.cols, "]; they are [", route.num_ids, ", ", options_.width, "]");
  const auto row_bytes = options_.width * static_cast<std::int64_t>(size_of(options_.row_wire));
  route.receiving.resize(static_cast<std::size_t>(route.num_ids * row_bytes));
  communicators.group->all_to_all({route.sending.data(), times(route.asked_by, row_bytes)},
                                  {route.receiving.data(), times(route.asked_of, row_bytes)});
  parallel_ranges(ctx.pool(), route.num_ids, kRowsAtATime,
                  [&](std::int64_t begin, std::int64_t end, int) {
                    for (std::int64_t k = begin; k < end; ++k) {
                      from_wire(options_.row_wire, route.receiving.data() + k * row_bytes,
                                options_.width, out.row(route.order[static_cast<std::size_t>(k)]));
                    }
                  });
}

void ShardedTable::plan_refresh(const Context&, const TableCommunicators& communicators,
                                const Route& route, std::span<const std::int64_t> changed,
                                Refresh& refresh) const {
  // The position of a request inside the block of the rank it came from names it to that rank.
  refresh.give.assign(route.asked_by.size(), 0);
  refresh.requests.clear();
  refresh.sending_positions.clear();
  std::size_t at = 0;
  for (std::size_t peer = 0; peer < route.asked_by.size(); ++peer) {
    for (std::int64_t k = 0; k < route.asked_by[peer]; ++k, ++at) {
      if (!std::binary_search(changed.begin(), changed.end(), route.requests[at])) continue;
      ++refresh.give[peer];
      refresh.requests.push_back(static_cast<std::int32_t>(at));
      refresh.sending_positions.push_back(static_cast<std::int32_t>(k));
    }
  }
  exchange_counts(*communicators.group, refresh.give, refresh.take);
  exchange_values(*communicators.group, refresh.sending_positions, refresh.give, refresh.positions,
                  refresh.take);
  std::size_t next = 0;
  std::int64_t block = 0;
  for (std::size_t peer = 0; peer < refresh.take.size(); ++peer) {
    for (std::int64_t k = 0; k < refresh.take[peer]; ++k, ++next) {
      refresh.positions[next] =
          route.order[static_cast<std::size_t>(block + refresh.positions[next])];
    }
    block += route.asked_of[peer];
  }
}

template <class T>
void ShardedTable::fetch_changed(const Context& ctx, const TableCommunicators& communicators,
                                 const Refresh& refresh, Route& route, Rows<T> out) {
  const auto row_bytes = options_.width * static_cast<std::int64_t>(size_of(options_.row_wire));
  route.sending.resize(refresh.requests.size() * static_cast<std::size_t>(row_bytes));
  route.receiving.resize(refresh.positions.size() * static_cast<std::size_t>(row_bytes));
  parallel_ranges(ctx.pool(), static_cast<std::int64_t>(refresh.requests.size()), kRowsAtATime,
                  [&](std::int64_t begin, std::int64_t end, int) {
                    for (std::int64_t i = begin; i < end; ++i) {
                      const auto request =
                          static_cast<std::size_t>(refresh.requests[static_cast<std::size_t>(i)]);
                      row_to_wire(route.requests[request], route.sending.data() + i * row_bytes);
                    }
                  });
  communicators.group->all_to_all({route.sending.data(), times(refresh.give, row_bytes)},
                                  {route.receiving.data(), times(refresh.take, row_bytes)});
  parallel_ranges(ctx.pool(), static_cast<std::int64_t>(refresh.positions.size()), kRowsAtATime,
                  [&](std::int64_t begin, std::int64_t end, int) {
                    for (std::int64_t i = begin; i < end; ++i) {
                      from_wire(options_.row_wire, route.receiving.data() + i * row_bytes,
                                options_.width,
                                out.row(refresh.positions[static_cast<std::size_t>(i)]));
                    }
                  });
}

void ShardedTable::row_to_wire(std::int64_t row, std::byte* to) const {
  with_weights(own().weight_tensor(), [&](auto weights) {
    to_wire(options_.row_wire, &weights(row, 0), options_.width, to);
  });
}

void ShardedTable::update(const Context& ctx, const Route& route, const AdamWSettings& settings,
                          const ops::StepScale* scale, int num_replicas) {
  const auto count = static_cast<std::int64_t>(route.touched.size());
  update(ctx, {route.touched.data(), {count}},
         Rows<const float>(route.gradients.data(), count, options_.width, options_.width), settings,
         scale, num_replicas);
}

void ShardedTable::update(const Context& ctx, View<const std::int64_t, 1> touched,
                          Rows<const float> gradients, const AdamWSettings& settings,
                          const ops::StepScale* scale, int num_replicas) {
  AdamWSettings own_settings = settings;
  if (options_.replicas == ReplicaMode::kAverage &&
      options_.optimiser == SparseOptimiser::kAdaGrad && num_replicas > 1) {
    // rate / sqrt(v / M + eps) = rate sqrt(M) / sqrt(v + M eps): a replica sees gradients whose
    // squares are M times as large as those of the mean over all.
    const double m = num_replicas;
    own_settings.rate *= std::sqrt(m);
    own_settings.decay /= std::sqrt(m);
    own_settings.epsilon *= m;
  }
  own().update(ctx, touched, gradients, own_settings, scale);
}

void ShardedTable::average(const Context& ctx, const TableCommunicators& communicators) {
  if (communicators.num_replicas() == 1) return;
  TGR_CHECK(!dynamic_, "replicas of a dynamic table cannot be averaged row by row; use one group");
  const auto share = 1.0f / static_cast<float>(communicators.num_replicas());
  for (Tensor* tensor : {&own().weight_tensor(), &own().first_moment(), &own().second_moment()}) {
    if (tensor->size() == 0) continue;           // not of this optimiser
    TGR_ASSERT(tensor->dtype() == DType::kF32);  // sharded_rows.cc has refused others
    const bool on_host = options_.device == Device::kCpu;
    Tensor staged;
    if (!on_host) staged = to_host(ctx, *tensor);
    auto* values = reinterpret_cast<float*>(on_host ? tensor->data() : staged.data());
    communicators.replicas->all_reduce({values, tensor->size()}, dist::Reduce::kSum);
    parallel_ranges(ctx.host().pool(), tensor->size(), 1 << 15,
                    [&](std::int64_t begin, std::int64_t end, int) {
                      for (std::int64_t i = begin; i < end; ++i) values[i] *= share;
                    });
    if (!on_host) copy_tensor(ctx, *tensor, staged);
  }
}

template void ShardedTable::exchange<float>(const Context&, const TableCommunicators&, Route&,
                                            Rows<float>);
template void ShardedTable::exchange<bf16>(const Context&, const TableCommunicators&, Route&,
                                           Rows<bf16>);
template void ShardedTable::fetch_changed<float>(const Context&, const TableCommunicators&,
                                                 const Refresh&, Route&, Rows<float>);
template void ShardedTable::fetch_changed<bf16>(const Context&, const TableCommunicators&,
                                                const Refresh&, Route&, Rows<bf16>);

}  // namespace turbogr::embedding
