// This rank's part of a table whose rows are spread over the ranks of a group; groups may be
// replicas of each other. The distinct ids of a step travel to their owners (route.h), rows come
// back, gradients return and are summed there in rank order (row_exchange.h), and each owner
// updates its own rows: the same result as one table on one rank, up to the order of sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/view.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/item_table.h"
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
  std::int64_t rows = 0;  // of the whole table
  std::int64_t width = 64;
  SparseOptimiser optimiser = SparseOptimiser::kAdamW;
  DType dtype = DType::kF32;  // of the rows; or bf16, f16
  Placement placement = Placement::kRoundRobin;
  ReplicaMode replicas = ReplicaMode::kExact;
  DType row_wire = DType::kF32;       // f32, bf16 or f16: rows on their way
  DType gradient_wire = DType::kF32;  // f32 or bf16: gradients on theirs
  Device device = Device::kCpu;       // of the rows
  std::uint64_t seed = 1;
  ops::RowStart start;
};

class ShardedTable {
 public:
  // Shard `shard` of `shards`.
  ShardedTable(const ShardedOptions& options, int shard, int shards);
  void initialise(const Context& ctx);

  const ShardedOptions& options() const { return options_; }
  const Sharding& sharding() const { return sharding_; }
  std::size_t bytes() const { return own_.bytes(); }

  int owner_of(std::int64_t id) const { return sharding_.shard_of(id); }
  void own_rows(std::vector<std::int64_t>& ids) const;  // of ids this rank owns: their rows here
  void check_group(const dist::Communicator& group) const;  // the one it is sharded over?

  // Applies summed gradients to own rows `touched` as ItemTable::update does, both in the table's
  // memory. `num_replicas` corrects AdaGrad in average mode.
  void update(const Context& ctx, View<const std::int64_t, 1> touched, Rows<const float> gradients,
              const AdamWSettings& settings, const ops::StepScale* scale = nullptr,
              int num_replicas = 1);
  // Average mode: weights and optimiser state become their means over the replicas.
  void average(const Context& ctx, const TableCommunicators& communicators);

  ItemTable& own() { return own_; }
  const ItemTable& own() const { return own_; }

 private:
  ShardedOptions options_;
  Sharding sharding_;
  int shard_;
  ItemTable own_;
};

}  // namespace turbogr::embedding
