// A sharded table's rows and gradients in the memory of a context's device, moved by its operators
// and a communicator over that memory (dist/device_communicator.h). Which rows go where was settled
// by the host (ShardedTable::route); the lists are sent ahead, and nothing here waits for the
// device.
//
//   table.route(ctx.host(), host_communicators, ids, route);
//   exchange.fetch<T>(ctx, table, device_communicators, route, rows);
//   ...
//   exchange.return_gradients(ctx, table, device_communicators, route, gradient);
//   exchange.update(ctx, table, settings, scale, num_replicas);
//
// One for each route on its way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "turbogr/core/context.h"
#include "turbogr/core/feed.h"
#include "turbogr/core/planned_bytes.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/view.h"
#include "turbogr/embedding/route.h"
#include "turbogr/embedding/sharded_table.h"

namespace turbogr::embedding {

class DeviceExchange {
 public:
  // As ShardedTable's. Rows travel as f32 or bf16.
  template <class T>
  void fetch(const Context& ctx, const ShardedTable& table, const TableCommunicators& communicators,
             const Route& route, Rows<T> out);
  template <class T>
  void fetch_changed(const Context& ctx, const ShardedTable& table,
                     const TableCommunicators& communicators, const Refresh& refresh,
                     const Route& route, Rows<T> out);
  void return_gradients(const Context& ctx, const ShardedTable& table,
                        const TableCommunicators& communicators, const Route& route,
                        Rows<const float> gradient);
  void update(const Context& ctx, ShardedTable& table, const AdamWSettings& settings,
              const ops::StepScale* scale, int num_replicas);

  // Summed, of the own rows touched; after return_gradients.
  Rows<const float> gradients() const { return gradients_; }
  PlannedBytes bytes() const;

 private:
  struct Groups {
    View<const std::int64_t, 1> rows, offsets;
    View<const std::int32_t, 1> positions;
  };
  void send_groups(const Context& ctx, const Route& route, bool joined);
  template <class T>
  void unpack(const Context& ctx, DType wire, View<const std::int64_t, 1> places,
              std::int64_t arrived, Rows<T> out);

  Feed fetch_lists_, changed_lists_, return_lists_;
  View<const std::int32_t, 1> order_;  // [num_ids], whose row goes out k-th
  View<const std::int64_t, 1> touched_;
  Groups groups_, joined_groups_;
  Rows<const float> gradients_;
  Tensor sending_, receiving_, wide_, sums_, joined_sums_;
};

}  // namespace turbogr::embedding
