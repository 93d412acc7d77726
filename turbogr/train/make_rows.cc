#include "turbogr/train/make_rows.h"

#include "turbogr/embedding/host_rows.h"
#include "turbogr/embedding/local_rows.h"
#include "turbogr/embedding/planned_rows.h"
#include "turbogr/embedding/sharded_rows.h"

namespace turbogr::train {
namespace {

// What the tables take, of this rank, and what a GPU has copies of.
PlannedBytes table_bytes(const Context& ctx, const RowPlan& plan) {
  PlannedBytes planned;
  for (const embedding::TableOptions& table : plan.tables) {
    planned.add(plan.memory, embedding::shard_bytes(table, plan.ranks.layout()));
  }
  if (plan.copies > 0) {
    embedding::TableOptions copies = plan.tables[0];
    copies.rows = plan.copies;
    planned.add(ctx.device(), embedding::shard_bytes(copies, plan.ranks.layout()));
  }
  return planned;
}

}  // namespace

template <class T>
std::unique_ptr<embedding::RowSource<T>> make_rows(const Context& ctx, const Context& next,
                                                   dist::Communicator& world, const RowPlan& plan) {
  const bool sharded = plan.ranks.sharded();
  if (plan.plan_only) {
    const bool moves = sharded && ctx.device() == Device::kCuda && plan.most > 0;
    return std::make_unique<embedding::PlannedRows<T>>(
        table_bytes(ctx, plan), moves ? embedding::exchange_bytes(plan.tables[0], plan.most) : 0);
  }
  if (sharded) {
    return std::make_unique<embedding::ShardedRows<T>>(ctx, next, world, plan.tables, plan.memory,
                                                       plan.ranks.layout());
  }
  if (plan.memory == Device::kPinned && plan.ahead && plan.tables.size() == 1) {
    return std::make_unique<embedding::HostRows<T>>(
        ctx, plan.tables[0], plan.most, embedding::most_used_rows(plan.counts, plan.copies));
  }
  return std::make_unique<embedding::LocalRows<T>>(plan.tables, plan.memory);
}

template std::unique_ptr<embedding::RowSource<float>> make_rows(const Context&, const Context&,
                                                                dist::Communicator&,
                                                                const RowPlan&);
template std::unique_ptr<embedding::RowSource<bf16>> make_rows(const Context&, const Context&,
                                                               dist::Communicator&, const RowPlan&);

}  // namespace turbogr::train
