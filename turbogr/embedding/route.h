// How the distinct ids of one step reach the ranks that own them, for all tables at once, and what
// the owners know of them. Lists of every table travel in one message, so that the number of
// collectives does not go with the number of tables; rows and gradients then follow the same plan
// (row_exchange.h).
//
//   route_ids(ctx, communicators, tables, ids, route);     // ids: of each table, distinct
//   plan_refresh(ctx, communicators, tables, next, route, refresh);
//   split_route(ctx, communicators, tables, route, next, among, others);
//
// Collective over the group. Memory goes round from step to step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"
#include "turbogr/embedding/sharded_table.h"

namespace turbogr::embedding {

// One side of a message of rows: for each rank, in their order, the rows of each table end to end.
// Tables' widths are multiples of a unit of columns (their greatest common divisor), and places are
// counted in units: alone in a message, a table's k-th row has place k.
struct RowMessage {
  std::vector<std::int64_t> units;                // [ranks], for or from each
  std::vector<std::vector<std::int32_t>> places;  // of each table's rows, rank by rank
  std::vector<std::int64_t> next;                 // [ranks], while it is laid out

  std::int64_t num_units() const;
};

// One table's part of a step.
struct Route {
  // This rank as one that asks. Ids are grouped by owner.
  std::int64_t num_ids = 0;
  std::int64_t num_gradients = 0;      // rows that `order` points into; more in a part of a route
  std::vector<std::int64_t> asked_of;  // [G], ids asked of each rank
  std::vector<std::int32_t> order;     // [num_ids], place among the ids of the k-th one asked

  // This rank as an owner. Requests stand in the order of the ranks they came from.
  std::vector<std::int64_t> asked_by;        // [G]
  std::vector<std::int64_t> requests;        // [requests], own rows
  std::vector<std::int64_t> rows;            // [U], the distinct ones among them, ascending
  std::vector<std::int64_t> group_offsets;   // [U + 1]
  std::vector<std::int32_t> group_requests;  // [requests], those of each distinct row, in order
  std::vector<std::int32_t> group_places;    // [requests], their places in the message

  // With exact replicas, the union over all groups; else the same as rows.
  std::vector<std::int64_t> touched;            // [W], ascending
  std::vector<std::int64_t> replica_counts;     // [M], distinct rows of each replica
  std::vector<std::int64_t> all_rows;           // of the replicas, end to end
  std::vector<std::int64_t> touched_offsets;    // [W + 1]
  std::vector<std::int32_t> touched_positions;  // positions among the replicas' rows, end to end
  std::vector<std::int32_t> touched_places;     // their places in the replicas' message

  std::vector<std::int64_t> sending_ids, next_of;  // on their way
  std::vector<std::int32_t> inverse;
};

// Lists on their way, of all tables.
struct ListBuffers {
  std::vector<std::int64_t> send_counts, receive_counts, send_bytes, receive_bytes;
  std::vector<std::size_t> next_of;  // [tables]
  std::vector<std::byte> sending, receiving;
};

// Which rows and requests of a step are in a part of it.
struct SplitMarks {
  std::vector<std::uint8_t> rows, requests;
  std::vector<std::vector<std::int32_t>> places, chosen_places;  // of each table
};

struct StepRoute {
  std::vector<Route> tables;
  RowMessage asked;      // rows this rank asks for, by owner
  RowMessage requested;  // rows asked of this rank, by who asks
  RowMessage replicas;   // distinct rows of each replica; empty where there are none to add up
  bool joined = false;   // exact replicas add up their gradients
  ListBuffers lists;
  SplitMarks marks;  // of a part
};

// The rows of one step that the update before it will change: fetched again after that update.
struct Refresh {
  std::vector<std::int64_t> give;       // [G], rows given again to each rank
  std::vector<std::int32_t> places;     // of them in the block of the rank that asked
  std::vector<std::int64_t> requests;   // the own rows they are
  std::vector<std::int64_t> take;       // [G]
  std::vector<std::int32_t> positions;  // places among the ids
};
struct StepRefresh {
  std::vector<Refresh> tables;
  RowMessage given, taken;
  ListBuffers lists;
};

// `ids` [tables], each distinct.
void route_ids(const Context& ctx, const TableCommunicators& communicators,
               std::span<ShardedTable> tables, std::span<const View<const std::int64_t, 1>> ids,
               StepRoute& route);

// Which rows of `next` the step of `current` changes.
void plan_refresh(const TableCommunicators& communicators, std::span<const ShardedTable> tables,
                  const StepRoute& next, const StepRoute& current, StepRefresh& refresh);

// Cuts `current` in two by its rows: those that `next` touches on some rank, and the others.
// Gradients of either part may return, and update, on their own.
void split_route(const Context& ctx, const TableCommunicators& communicators,
                 std::span<const ShardedTable> tables, const StepRoute& current,
                 const StepRoute& next, StepRoute& among, StepRoute& others);

// Columns that all tables' widths are multiples of.
std::int64_t unit_columns(std::span<const ShardedTable> tables);

// Where the rows of messages stand, from their counts; after they have changed.
void lay_out_rows(std::span<const ShardedTable> tables, StepRoute& route);

}  // namespace turbogr::embedding
