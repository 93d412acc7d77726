// The way back of ShardedTable: gradients to the rows' owners, and between replicas.
#include <numeric>
#include <utility>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/embedding/counts.h"
#include "turbogr/embedding/row_groups.h"
#include "turbogr/embedding/sharded_table.h"
#include "turbogr/embedding/wire.h"
#include "turbogr/ops/rows/embedding.h"

namespace turbogr::embedding {
// Columns [begin, end) of every row travel together.
std::pair<std::int64_t, std::int64_t> ShardedTable::piece_columns(std::int64_t piece) const {
  return {options_.width * piece / options_.pieces, options_.width * (piece + 1) / options_.pieces};
}

// Each stage of a piece runs while the pieces before it are on their way: between the ranks of a
// group and, where there are replicas, between those.
void ShardedTable::return_gradients(const Context& ctx, const TableCommunicators& communicators,
                                    Route& route, Rows<const float> gradient) {
  TGR_CHECK(gradient.rows == route.num_gradients && gradient.cols == options_.width,
            "gradients are [", gradient.rows, ", ", gradient.cols, "]; wanted [",
            route.num_gradients, ", ", options_.width, "]");
  const bool joined = communicators.num_replicas() > 1 && options_.replicas == ReplicaMode::kExact;
  const auto element = static_cast<std::int64_t>(size_of(options_.gradient_wire));
  const auto requests = static_cast<std::int64_t>(route.requests.size());
  route.sending.resize(static_cast<std::size_t>(route.num_ids * options_.width * element));
  route.receiving.resize(static_cast<std::size_t>(requests * options_.width * element));
  route.gradients.resize(route.touched.size() * static_cast<std::size_t>(options_.width));
  if (joined) {
    route.replica_sums.resize(
        static_cast<std::size_t>(sum_of(route.replica_counts) * options_.width * element));
  }
  std::vector<dist::Pending> to_owners, to_replicas;
  for (std::int64_t piece = 0; piece < options_.pieces; ++piece) {
    const auto [begin, end] = piece_columns(piece);
    std::byte* const sending = route.sending.data() + route.num_ids * begin * element;
    pack_gradients(ctx, route, gradient.columns(begin, end - begin), sending);
    const std::int64_t row_bytes = (end - begin) * element;
    to_owners.push_back(communicators.group->start_all_to_all(
        {sending, times(route.asked_of, row_bytes)},
        {route.receiving.data() + requests * begin * element, times(route.asked_by, row_bytes)}));
  }
  for (std::int64_t piece = 0; piece < options_.pieces; ++piece) {
    const auto [begin, end] = piece_columns(piece);
    to_owners[static_cast<std::size_t>(piece)].wait();
    const Rows<const float> arrived = as_floats(
        ctx, route.receiving.data() + requests * begin * element, requests, end - begin, route);
    if (!joined) {
      sum_group(ctx, route, arrived, gradient_columns(route, begin, end));
    } else {
      to_replicas.push_back(start_replicas(ctx, communicators, route, arrived, begin));
    }
  }
  for (std::int64_t piece = 0; joined && piece < options_.pieces; ++piece) {
    const auto [begin, end] = piece_columns(piece);
    const std::int64_t all = sum_of(route.replica_counts);
    to_replicas[static_cast<std::size_t>(piece)].wait();
    const Rows<const float> arrived =
        as_floats(ctx, route.replica_sums.data() + all * begin * element, all, end - begin, route);
    ops::sum_duplicate_rows<float>(
        ctx, arrived, groups_of(route.touched, route.touched_offsets, route.touched_positions),
        gradient_columns(route, begin, end));
  }
}

Rows<float> ShardedTable::gradient_columns(Route& route, std::int64_t begin,
                                           std::int64_t end) const {
  return {route.gradients.data() + begin, static_cast<std::int64_t>(route.touched.size()),
          end - begin, options_.width};
}

void ShardedTable::pack_gradients(const Context& ctx, const Route& route,
                                  Rows<const float> gradient, std::byte* to) const {
  const auto row_bytes = gradient.cols * static_cast<std::int64_t>(size_of(options_.gradient_wire));
  parallel_ranges(
      ctx.pool(), route.num_ids, kRowsAtATime, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t k = begin; k < end; ++k) {
          to_wire(options_.gradient_wire, gradient.row(route.order[static_cast<std::size_t>(k)]),
                  gradient.cols, to + k * row_bytes);
        }
      });
}

// What has arrived, as numbers: in place where they travel as f32.
Rows<const float> ShardedTable::as_floats(const Context& ctx, const std::byte* from,
                                          std::int64_t rows, std::int64_t columns,
                                          Route& route) const {
  if (options_.gradient_wire == DType::kF32) {
    return {reinterpret_cast<const float*>(from), rows, columns, columns};
  }
  const auto row_bytes = columns * static_cast<std::int64_t>(size_of(options_.gradient_wire));
  route.arrived.resize(static_cast<std::size_t>(rows * columns));
  parallel_ranges(ctx.pool(), rows, kRowsAtATime, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      from_wire(options_.gradient_wire, from + i * row_bytes, columns,
                route.arrived.data() + i * columns);
    }
  });
  return {route.arrived.data(), rows, columns, columns};
}

void ShardedTable::sum_group(const Context& ctx, const Route& route, Rows<const float> arrived,
                             Rows<float> sums) const {
  ops::sum_duplicate_rows<float>(
      ctx, arrived, groups_of(route.rows, route.group_offsets, route.group_requests), sums);
}

// Replicas exchange sums of rows already deduplicated, which they add in the order of groups. A
// replica's own stand where the others' arrive.
dist::Pending ShardedTable::start_replicas(const Context& ctx,
                                           const TableCommunicators& communicators, Route& route,
                                           Rows<const float> arrived, std::int64_t begin) const {
  const auto element = static_cast<std::int64_t>(size_of(options_.gradient_wire));
  const auto own_rows = static_cast<std::int64_t>(route.rows.size());
  const std::int64_t row_bytes = arrived.cols * element;
  std::byte* const all = route.replica_sums.data() + sum_of(route.replica_counts) * begin * element;
  const std::int64_t before = std::accumulate(
      route.replica_counts.begin(), route.replica_counts.begin() + communicators.replicas->rank(),
      std::int64_t{0});
  std::byte* const own = all + before * row_bytes;
  if (options_.gradient_wire == DType::kF32) {
    sum_group(ctx, route, arrived,
              {reinterpret_cast<float*>(own), own_rows, arrived.cols, arrived.cols});
  } else {
    route.own_sums.resize(static_cast<std::size_t>(own_rows * arrived.cols));
    const Rows<float> sums(route.own_sums.data(), own_rows, arrived.cols, arrived.cols);
    sum_group(ctx, route, arrived, sums);
    for (std::int64_t i = 0; i < own_rows; ++i) {
      to_wire(options_.gradient_wire, sums.row(i), arrived.cols, own + i * row_bytes);
    }
  }
  return communicators.replicas->start_all_gather(own,
                                                  {all, times(route.replica_counts, row_bytes)});
}

}  // namespace turbogr::embedding
