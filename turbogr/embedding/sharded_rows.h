// Tables spread over the ranks of a group, groups being replicas of each other (sharded_table.h): a
// step's ids travel to the ranks that own them, rows come back, gradients return and are summed
// there, each of these of all tables together. A world of one is a group of one.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "turbogr/dist/communicator.h"
#include "turbogr/dist/device_communicator.h"
#include "turbogr/dist/topology.h"
#include "turbogr/embedding/route.h"
#include "turbogr/embedding/row_exchange.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/embedding/sharded_table.h"

namespace turbogr::embedding {

struct RankLayout {
  dist::Topology topology;
  Placement placement = Placement::kRoundRobin;
  ReplicaMode replicas = ReplicaMode::kExact;
  std::int64_t average_every = 1;  // average: steps between means
  DType row_wire = DType::kF32;
  DType gradient_wire = DType::kF32;
  // Rows move over `link` (dist/device_communicator.h): always on a GPU, and on a CPU to try it
  // there; else by the hosts' own messages.
  bool device_rows = false;
  dist::DeviceLink link = dist::DeviceLink::kStaged;
  dist::WaitOptions wait;  // of NCCL's collectives
};

// A rank's rows of one table and their state, without making them.
std::size_t shard_bytes(const TableOptions& table, const RankLayout& layout);
// What moves `most` rows of a step on a device: sent, received, summed, and summed over replicas;
// as many as a step touches when ranks ask each other for equally many.
std::size_t exchange_bytes(const TableOptions& table, std::int64_t most);

template <class T>
class ShardedRows final : public RowSource<T> {
 public:
  // `next` is the context of Lane::kNext; `memory` the context's device, or pinned memory of a
  // GPU's host. All outlive the source; the world is used by nobody else meanwhile. Collective.
  ShardedRows(const Context& ctx, const Context& next, dist::Communicator& world,
              const std::vector<TableOptions>& tables, Device memory, const RankLayout& layout);

  void initialise(const Context& ctx) override;
  std::unique_ptr<RowRequest> make_request(const Context& ctx,
                                           std::span<const std::int64_t> most) const override;
  void prepare(const Context& ctx, Lane lane, const StepIds& ids, RowRequest& request) override;
  void fetch(const Context& ctx, Lane lane, RowRequest& request,
             std::span<const StepRows<T>> out) override;
  void return_gradients(const Context& ctx, Lane lane, RowRequest& request, Part part,
                        std::span<const Rows<const float>> gradients, double* squares) override;
  void update(const Context& ctx, Lane lane, RowRequest& request, Part part,
              std::span<const AdamWSettings> settings, const ops::StepScale* scale) override;
  bool fetches_ahead() const override { return true; }
  void plan_refresh(const Context& ctx, Lane lane, RowRequest& next, RowRequest& current,
                    bool split) override;
  void refresh(const Context& ctx, Lane lane, RowRequest& next,
               std::span<const StepRows<T>> out) override;
  void gather(const Context& ctx, std::size_t table, View<const std::int64_t, 1> ids,
              Rows<T> out) override;
  ItemTable& shard(std::size_t table) override { return tables_[table].own(); }
  const Sharding& sharding(std::size_t table) const override { return tables_[table].sharding(); }
  int shard_index() const override { return ends(Lane::kThis).groups.group->rank(); }
  dist::Communicator* group() override { return ends(Lane::kThis).groups.group.get(); }
  dist::Communicator* device_group() override {
    return layout_.device_rows ? ends(Lane::kThis).device_group.get() : group();
  }
  void settle(const Context& ctx) override { average_replicas(ctx); }
  PlannedBytes bytes() const override;

  ShardedTable& table(std::size_t index) { return tables_[index]; }

 private:
  // All of a step's rows, or those of a part of it.
  struct PartRequest {
    StepRoute route;
    RowExchange exchange;
  };
  // Of a table whose rows are wanted in f16, too.
  struct WideRows {
    Tensor rows;    // f32, on their way to f16
    Tensor places;  // i64, 0 to their number
  };
  struct Request : RowRequest {
    std::int64_t step = 0;
    std::size_t planned = 0;
    double factor = 1;  // of gradients: a group that goes its own way divides by its own tokens
    std::vector<View<const std::int64_t, 1>> ids;  // of each table
    PartRequest all, next_reads, rest;             // rows that the next step reads, and the others
    StepRefresh refresh;
    std::vector<WideRows> wide;  // of each table
    PartRequest& of(Part part) {
      return part == Part::kAll ? all : part == Part::kNextReads ? next_reads : rest;
    }
    PlannedBytes bytes() const override { return {.gpu = planned, .host = 0}; }
  };
  // A communicator each for what may run at the same time.
  struct Ends {
    dist::SparseGroups groups;
    std::unique_ptr<dist::Communicator> device_group, device_replicas;  // where rows move by device
    TableCommunicators hosts() const { return {groups.group.get(), groups.replicas.get()}; }
    TableCommunicators rows() const {
      if (!device_group) return hosts();
      return {device_group.get(), device_replicas.get()};
    }
  };
  Ends make_ends(const Context& ctx, dist::Communicator& world) const;
  const Ends& ends(Lane lane) const { return ends_[static_cast<std::size_t>(lane)]; }
  void average_replicas(const Context& ctx);
  // Takes a table's rows out of the message: in T, or where some are wanted in f16 by way of f32
  // ones that are rounded to both.
  void take_rows(const Context& ctx, Request& request, std::size_t table,
                 const StepRows<T>& out) const;

  RankLayout layout_;
  std::array<Ends, 2> ends_;
  std::vector<ShardedTable> tables_;
  std::int64_t pieces_ = 1;  // in which gradients return
  PartRequest gathering_;    // of gather
  Feed gather_feed_;
  Tensor gathered_;
  bool replicas_differ_ = false;  // averaged ones: rows were updated since the last mean
};

}  // namespace turbogr::embedding
