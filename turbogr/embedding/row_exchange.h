// The rows and gradients of all tables of a step between the ranks of a group: one exchange of rows
// and one of gradients, whatever the number of tables, in the memory of a context's device and by
// its operators. Which rows go where was settled before (route.h); on a GPU the lists are sent
// ahead, and nothing here waits for the device.
//
//   route_ids(ctx.host(), host_communicators, tables, ids, route);
//   exchange.fetch(ctx, tables, communicators, route);
//   exchange.take_rows<float>(ctx, table, rows);   // of each table: rows(i) is that of its i-th id
//   ...
//   exchange.return_gradients(ctx, tables, communicators, route, gradients, pieces);
//   tables[t].update(ctx, exchange.touched(t), exchange.gradients(t), settings, scale, replicas);
//
// One for each route on its way; the route stays as it is until the update.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/feed.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/view.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/route.h"
#include "turbogr/embedding/sharded_table.h"

namespace turbogr::embedding {

// Gradients return in so many pieces at most, each some columns of all rows: one is summed, and on
// its way between replicas, while others still travel inside the group. It changes no bit.
inline constexpr std::int64_t kMostPieces = 4;
// As many as are worth it on a CPU and divide all tables' rows evenly. A GPU takes one.
std::int64_t gradient_pieces(std::span<const ShardedTable> tables);

class RowExchange {
 public:
  void fetch(const Context& ctx, std::span<const ShardedTable> tables,
             const TableCommunicators& communicators, const StepRoute& route);
  // Those rows again that were changed since.
  void fetch_changed(const Context& ctx, std::span<const ShardedTable> tables,
                     const TableCommunicators& communicators, const StepRoute& route,
                     const StepRefresh& refresh);
  // out(i) = the row of the table's i-th id, of those that the last fetch brought; others stay.
  template <class T>
  void take_rows(const Context& ctx, std::size_t table, Rows<T> out) const;

  // Sums `gradients` [num_gradients, D] of each table over all ranks (exact: of all groups).
  void return_gradients(const Context& ctx, std::span<const ShardedTable> tables,
                        const TableCommunicators& communicators, const StepRoute& route,
                        std::span<const Rows<const float>> gradients, std::int64_t pieces);
  // Own rows of a table and their sums; after return_gradients.
  View<const std::int64_t, 1> touched(std::size_t table) const { return tables_[table].touched; }
  Rows<const float> gradients(std::size_t table) const { return tables_[table].gradients; }

 private:
  struct Groups {
    View<const std::int64_t, 1> rows, offsets;
    View<const std::int32_t, 1> places;
  };
  // A table's lists, where the device reads them.
  struct TableLists {
    std::int64_t num_ids = 0, width = 0;
    View<const std::int64_t, 1> requests;                     // fetch: own rows,
    View<const std::int32_t, 1> request_places;               // where they go,
    View<const std::int32_t, 1> arrived_places, arrived_ids;  // and whose the arriving ones are
    View<const std::int32_t, 1> order, places;                // return: whose gradient goes where
    Groups groups, joined;                                    // and which are added up
    View<const std::int64_t, 1> touched;
    Rows<float> gradients;
  };

  void begin(std::span<const ShardedTable> tables, const StepRoute& route);
  void bring_rows(const Context& ctx, std::span<const ShardedTable> tables,
                  dist::Communicator& group, const RowMessage& sent, const RowMessage& received);
  void send_return_lists(const Context& ctx, const StepRoute& route);
  void make_gradient_room(const Context& ctx);
  template <class Wire>
  void return_as(const Context& ctx, const TableCommunicators& communicators,
                 const StepRoute& route, std::span<const Rows<const float>> gradients,
                 std::int64_t pieces);
  template <class Wire>
  void sum_groups(const Context& ctx, const Wire* message, std::int64_t unit, const Groups& groups,
                  Rows<float> sums) const;

  std::int64_t unit_ = 1;  // columns
  DType row_wire_ = DType::kF32;
  std::vector<TableLists> tables_;
  Feed fetch_lists_, changed_lists_, return_lists_;
  std::vector<std::int64_t> send_bytes_, receive_bytes_;  // [ranks]
  Tensor sending_, receiving_, own_sums_, rounded_, replica_sums_, gradients_;
};

}  // namespace turbogr::embedding
