#include "turbogr/embedding/route.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "turbogr/core/check.h"
#include "turbogr/embedding/counts.h"
#include "turbogr/embedding/row_groups.h"
#include "turbogr/embedding/table_lists.h"

namespace turbogr::embedding {
namespace {

// Ids by owner, in their order.
void sort_by_owner(const ShardedTable& table, View<const std::int64_t, 1> ids, int ranks,
                   Route& route) {
  const std::int64_t count = ids.shape[0];
  route.num_ids = route.num_gradients = count;
  route.asked_of.assign(static_cast<std::size_t>(ranks), 0);
  for (std::int64_t i = 0; i < count; ++i) {
    TGR_CHECK(ids(i) >= 0 && ids(i) < table.options().rows, "id ", ids(i), " at position ", i,
              "; the table has ", table.options().rows, " rows");
    ++route.asked_of[static_cast<std::size_t>(table.owner_of(ids(i)))];
  }
  route.next_of.resize(route.asked_of.size());
  std::exclusive_scan(route.asked_of.begin(), route.asked_of.end(), route.next_of.begin(),
                      std::int64_t{0});
  route.order.resize(static_cast<std::size_t>(count));
  route.sending_ids.resize(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto owner = static_cast<std::size_t>(table.owner_of(ids(i)));
    const auto at = static_cast<std::size_t>(route.next_of[owner]++);
    route.order[at] = static_cast<std::int32_t>(i);
    route.sending_ids[at] = ids(i);
  }
}

// Every replica learns which rows the others touch.
void join_replicas(const Context& ctx, dist::Communicator& replicas, StepRoute& route) {
  const std::size_t tables = route.tables.size();
  const auto ranks = static_cast<std::size_t>(replicas.size());
  ListBuffers& lists = route.lists;
  lists.send_counts.clear();
  for (const Route& table : route.tables) lists.send_counts.push_back(std::ssize(table.rows));
  lists.receive_counts.resize(ranks * tables);
  lists.receive_bytes.assign(ranks, static_cast<std::int64_t>(tables * sizeof(std::int64_t)));
  replicas.all_gather(lists.send_counts.data(), {lists.receive_counts.data(), lists.receive_bytes});
  // A shard's rows have numbers of four bytes.
  using Number = std::uint32_t;
  lists.sending.resize(static_cast<std::size_t>(sum_of(lists.send_counts)) * sizeof(Number));
  lists.next_of.resize(tables);
  for_each_block<Number>(lists.send_counts, lists.next_of,
                         [&](std::size_t t, std::size_t, std::size_t count, std::size_t at) {
                           auto* numbers = reinterpret_cast<Number*>(lists.sending.data() + at);
                           std::copy_n(route.tables[t].rows.begin(), count, numbers);
                         });
  lists.receiving.resize(static_cast<std::size_t>(
      bytes_a_rank<Number>(lists.receive_counts, tables, lists.receive_bytes)));
  replicas.all_gather(lists.sending.data(), {lists.receiving.data(), lists.receive_bytes});
  for (std::size_t t = 0; t < tables; ++t) {
    Route& table = route.tables[t];
    table.replica_counts.resize(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      table.replica_counts[rank] = lists.receive_counts[rank * tables + t];
    }
    table.all_rows.resize(static_cast<std::size_t>(sum_of(table.replica_counts)));
  }
  for_each_block<Number>(lists.receive_counts, lists.next_of,
                         [&](std::size_t t, std::size_t first, std::size_t count, std::size_t at) {
                           const auto* numbers =
                               reinterpret_cast<const Number*>(lists.receiving.data() + at);
                           std::copy_n(numbers, count, route.tables[t].all_rows.data() + first);
                         });
  for (Route& table : route.tables) {
    group_equal(ctx, table.all_rows, table.touched, table.touched_offsets, table.touched_positions,
                table.inverse);
  }
}

// counts_of(t) [ranks]: rows of table t for each rank.
template <class Counts>
void lay_out(std::span<const ShardedTable> tables, Counts&& counts_of, RowMessage& message) {
  const std::int64_t unit = unit_columns(tables);
  const std::size_t ranks = counts_of(0).size();
  message.units.assign(ranks, 0);
  message.places.resize(tables.size());
  for (std::size_t t = 0; t < tables.size(); ++t) {
    message.places[t].resize(static_cast<std::size_t>(sum_of(counts_of(t))));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      message.units[rank] += counts_of(t)[rank] * (tables[t].options().width / unit);
    }
  }
  TGR_CHECK(message.num_units() <= std::numeric_limits<std::int32_t>::max(), "rows of ",
            message.num_units(), " times ", unit,
            " columns in one message; at most 2^31 - 1 times fit: cut the batch, or make the "
            "tables' widths multiples of a larger number");
  message.next.resize(ranks);
  std::exclusive_scan(message.units.begin(), message.units.end(), message.next.begin(),
                      std::int64_t{0});
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const std::int64_t width = tables[t].options().width / unit;
    auto place = message.places[t].begin();
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::int64_t& next = message.next[rank];
      for (std::int64_t k = 0; k < counts_of(t)[rank]; ++k, next += width) {
        *place++ = static_cast<std::int32_t>(next);
      }
    }
  }
}

// places[positions[i]]
void pick_places(const std::vector<std::int32_t>& places,
                 const std::vector<std::int32_t>& positions, std::vector<std::int32_t>& picked) {
  picked.resize(positions.size());
  for (std::size_t i = 0; i < positions.size(); ++i) {
    picked[i] = places[static_cast<std::size_t>(positions[i])];
  }
}

}  // namespace

std::int64_t RowMessage::num_units() const { return sum_of(units); }

std::int64_t unit_columns(std::span<const ShardedTable> tables) {
  std::int64_t unit = 0;
  for (const ShardedTable& table : tables) unit = std::gcd(unit, table.options().width);
  return unit;
}

void lay_out_rows(std::span<const ShardedTable> tables, StepRoute& route) {
  lay_out(
      tables, [&](std::size_t t) -> auto& { return route.tables[t].asked_of; }, route.asked);
  lay_out(
      tables, [&](std::size_t t) -> auto& { return route.tables[t].asked_by; }, route.requested);
  if (route.joined) {
    lay_out(
        tables, [&](std::size_t t) -> auto& { return route.tables[t].replica_counts; },
        route.replicas);
  }
  for (std::size_t t = 0; t < tables.size(); ++t) {
    Route& table = route.tables[t];
    pick_places(route.requested.places[t], table.group_requests, table.group_places);
    if (route.joined) {
      pick_places(route.replicas.places[t], table.touched_positions, table.touched_places);
    }
  }
}

void route_ids(const Context& ctx, const TableCommunicators& communicators,
               std::span<ShardedTable> tables, std::span<const View<const std::int64_t, 1>> ids,
               StepRoute& route) {
  TGR_ASSERT(tables.size() == ids.size() && !tables.empty());
  dist::Communicator& group = *communicators.group;
  route.tables.resize(tables.size());
  route.joined =
      communicators.num_replicas() > 1 && tables[0].options().replicas == ReplicaMode::kExact;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    tables[t].check_group(group);
    sort_by_owner(tables[t], ids[t], group.size(), route.tables[t]);
  }
  exchange_lists<std::int64_t>(
      group, tables.size(),
      [&](std::size_t t) {
        return SendList<std::int64_t>{route.tables[t].sending_ids, route.tables[t].asked_of};
      },
      [&](std::size_t t) {
        return ReceiveList<std::int64_t>{route.tables[t].requests, route.tables[t].asked_by};
      },
      route.lists);
  for (std::size_t t = 0; t < tables.size(); ++t) {
    Route& table = route.tables[t];
    tables[t].own_rows(table.requests);
    group_equal(ctx, table.requests, table.rows, table.group_offsets, table.group_requests,
                table.inverse);
    if (route.joined) continue;
    table.touched = table.rows;
    table.replica_counts.assign(1, std::ssize(table.rows));
  }
  if (route.joined) join_replicas(ctx, *communicators.replicas, route);
  lay_out_rows(tables, route);
}

void plan_refresh(const TableCommunicators& communicators, std::span<const ShardedTable> tables,
                  const StepRoute& next, const StepRoute& current, StepRefresh& refresh) {
  refresh.tables.resize(tables.size());
  for (std::size_t t = 0; t < tables.size(); ++t) {
    // The position of a request inside the block of the rank it came from names it to that rank.
    const Route& route = next.tables[t];
    const std::vector<std::int64_t>& changed = current.tables[t].touched;
    Refresh& table = refresh.tables[t];
    table.give.assign(route.asked_by.size(), 0);
    table.requests.clear();
    table.places.clear();
    std::size_t at = 0;
    for (std::size_t peer = 0; peer < route.asked_by.size(); ++peer) {
      for (std::int64_t k = 0; k < route.asked_by[peer]; ++k, ++at) {
        if (!std::binary_search(changed.begin(), changed.end(), route.requests[at])) continue;
        ++table.give[peer];
        table.requests.push_back(route.requests[at]);
        table.places.push_back(static_cast<std::int32_t>(k));
      }
    }
  }
  exchange_lists<std::int32_t>(
      *communicators.group, tables.size(),
      [&](std::size_t t) {
        return SendList<std::int32_t>{refresh.tables[t].places, refresh.tables[t].give};
      },
      [&](std::size_t t) {
        return ReceiveList<std::int32_t>{refresh.tables[t].positions, refresh.tables[t].take};
      },
      refresh.lists);
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const Route& route = next.tables[t];
    Refresh& table = refresh.tables[t];
    std::size_t at = 0;
    std::int64_t block = 0;
    for (std::size_t peer = 0; peer < table.take.size(); ++peer) {
      for (std::int64_t k = 0; k < table.take[peer]; ++k, ++at) {
        table.positions[at] = route.order[static_cast<std::size_t>(block + table.positions[at])];
      }
      block += route.asked_of[peer];
    }
  }
  lay_out(
      tables, [&](std::size_t t) -> auto& { return refresh.tables[t].give; }, refresh.given);
  lay_out(
      tables, [&](std::size_t t) -> auto& { return refresh.tables[t].take; }, refresh.taken);
}

}  // namespace turbogr::embedding
