#include "turbogr/train/make_rows.h"

#include "turbogr/embedding/local_rows.h"
#include "turbogr/embedding/sharded_rows.h"

namespace turbogr::train {

template <class T>
std::unique_ptr<embedding::RowSource<T>> make_rows(
    const Context& ctx, const Context& next, dist::Communicator& world,
    const std::vector<embedding::TableOptions>& tables, Device memory, const RankOptions& ranks) {
  if (!ranks.sharded()) return std::make_unique<embedding::LocalRows<T>>(tables, memory);
  return std::make_unique<embedding::ShardedRows<T>>(ctx, next, world, tables, memory,
                                                     ranks.layout());
}

PlannedBytes table_bytes(const std::vector<embedding::TableOptions>& tables, Device memory,
                         const RankOptions& ranks) {
  PlannedBytes planned;
  for (const embedding::TableOptions& table : tables) {
    planned.add(memory, embedding::shard_bytes(table, ranks.layout()));
  }
  return planned;
}

template std::unique_ptr<embedding::RowSource<float>> make_rows(
    const Context&, const Context&, dist::Communicator&,
    const std::vector<embedding::TableOptions>&, Device, const RankOptions&);
template std::unique_ptr<embedding::RowSource<bf16>> make_rows(
    const Context&, const Context&, dist::Communicator&,
    const std::vector<embedding::TableOptions>&, Device, const RankOptions&);

}  // namespace turbogr::train
