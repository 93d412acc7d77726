// A table whose rows are spread over the ranks of a group; groups may be replicas of each other.
// The distinct ids of a step travel to their owners, rows come back, gradients return and are
// summed there in rank order, and each owner updates its own rows: the same result as one table on
// one rank, up to the order of sums.
//
//   table.route(ctx, communicators, ids, route);           // ids: distinct
//   table.fetch<float>(ctx, communicators, route, rows);   // rows(i) is the row of ids(i)
//   ...
//   table.return_gradients(ctx, communicators, route, gradient);
//   table.update(ctx, route, settings);
//
// Every call but update is collective over the group. Calls that may run at the same time are given
// communicators of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/view.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/dynamic_rows.h"
#include "turbogr/embedding/item_table.h"
#include "turbogr/embedding/route.h"
#include "turbogr/embedding/sharding.h"

namespace turbogr::embedding {

// `group` shares the shards; `replicas` hold the same shard in other groups (null or of one: none).
struct TableCommunicators {
  dist::Communicator* group = nullptr;
  dist::Communicator* replicas = nullptr;

  int num_replicas() const { return replicas == nullptr ? 1 : replicas->size(); }
};

// Exact: gradients of all groups meet before the update. Average: each group goes its own way and
// weights are averaged now and then.
enum class ReplicaMode : std::uint8_t { kExact, kAverage };
ReplicaMode replica_mode_from_name(std::string_view name);  // exact or average

struct ShardedOptions {
  std::int64_t rows = 0;  // of the whole table; not used when dynamic
  std::int64_t width = 64;
  SparseOptimiser optimiser = SparseOptimiser::kAdamW;
  DType dtype = DType::kF32;  // of the rows; or bf16, f16
  Placement placement = Placement::kRoundRobin;
  ReplicaMode replicas = ReplicaMode::kExact;
  bool dynamic = false;               // ids of any size; rows appear when they are first asked for
  DType row_wire = DType::kF32;       // f32, bf16 or f16: rows on their way
  DType gradient_wire = DType::kF32;  // f32 or bf16: gradients on theirs
  // Of the rows. Those on a GPU are read and changed by device_exchange.h; route, plan_refresh and
  // the whole table's coming and going are the host's here, too. Not for dynamic tables.
  Device device = Device::kCpu;
  // Gradients return in so many pieces, each some columns of all rows: one is summed while others
  // are on their way. The same on every rank; it changes no bit.
  std::int64_t pieces = 1;
  std::uint64_t seed = 1;
  double scale = 0.02;
};

class ShardedTable {
 public:
  // Shard `shard` of `shards`.
  ShardedTable(const ShardedOptions& options, int shard, int shards);
  void initialise(const Context& ctx);

  const ShardedOptions& options() const { return options_; }
  const Sharding& sharding() const { return sharding_; }
  std::size_t bytes() const { return own().bytes(); }

  void route(const Context& ctx, const TableCommunicators& communicators,
             View<const std::int64_t, 1> ids, Route& route);

  // out(i) = row of ids(i). `pack` reads the table and may be called earlier than `exchange`.
  template <class T>
  void fetch(const Context& ctx, const TableCommunicators& communicators, Route& route,
             Rows<T> out) {
    pack(ctx, route);
    exchange<T>(ctx, communicators, route, out);
  }
  void pack(const Context& ctx, Route& route) const;
  template <class T>
  void exchange(const Context& ctx, const TableCommunicators& communicators, Route& route,
                Rows<T> out);

  // Which rows of `route` a step that touched `changed` (ascending own rows) will have changed.
  void plan_refresh(const Context& ctx, const TableCommunicators& communicators, const Route& route,
                    std::span<const std::int64_t> changed, Refresh& refresh) const;
  // Overwrites those rows of out with what they are now.
  template <class T>
  void fetch_changed(const Context& ctx, const TableCommunicators& communicators,
                     const Refresh& refresh, Route& route, Rows<T> out);

  // Cuts `route` in two by its rows: those among `chosen` (ascending own rows, the same on all
  // replicas) and the others. Gradients of either part may return, and update, on their own.
  void split(const Context& ctx, const TableCommunicators& communicators, const Route& route,
             std::span<const std::int64_t> chosen, Route& among, Route& others) const;

  // Sums `gradient` [num_ids, D] of all ranks (exact: of all groups) into route.gradients.
  void return_gradients(const Context& ctx, const TableCommunicators& communicators, Route& route,
                        Rows<const float> gradient);
  // Applies route.gradients to route.touched, as ItemTable::update does. `num_replicas` corrects
  // AdaGrad in average mode.
  void update(const Context& ctx, const Route& route, const AdamWSettings& settings,
              const ops::StepScale* scale = nullptr, int num_replicas = 1);
  // The same for own rows `touched` and their summed gradients in the table's memory.
  void update(const Context& ctx, View<const std::int64_t, 1> touched, Rows<const float> gradients,
              const AdamWSettings& settings, const ops::StepScale* scale, int num_replicas);
  // Average mode: weights and optimiser state become their means over the replicas.
  void average(const Context& ctx, const TableCommunicators& communicators);

  ItemTable& own() { return dynamic_ ? dynamic_->table() : *dense_; }
  const ItemTable& own() const { return dynamic_ ? dynamic_->table() : *dense_; }
  DynamicTable* dynamic() { return dynamic_.get(); }

 private:
  int owner_of(std::int64_t id) const;
  void row_to_wire(std::int64_t row, std::byte* to) const;
  void own_rows(const Context& ctx, std::vector<std::int64_t>& ids);
  void join_replicas(const Context& ctx, const TableCommunicators& communicators,
                     Route& route) const;

  std::pair<std::int64_t, std::int64_t> piece_columns(std::int64_t piece) const;
  Rows<float> gradient_columns(Route& route, std::int64_t begin, std::int64_t end) const;
  void pack_gradients(const Context& ctx, const Route& route, Rows<const float> gradient,
                      std::byte* to) const;
  Rows<const float> as_floats(const Context& ctx, const std::byte* from, std::int64_t rows,
                              std::int64_t columns, Route& route) const;
  void sum_group(const Context& ctx, const Route& route, Rows<const float> arrived,
                 Rows<float> sums) const;
  dist::Pending start_replicas(const Context& ctx, const TableCommunicators& communicators,
                               Route& route, Rows<const float> arrived, std::int64_t begin) const;

  ShardedOptions options_;
  Sharding sharding_;
  int shard_;
  std::unique_ptr<ItemTable> dense_;
  std::unique_ptr<DynamicTable> dynamic_;
};

}  // namespace turbogr::embedding
