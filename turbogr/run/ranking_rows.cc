#include "turbogr/run/ranking_rows.h"

#include "turbogr/core/planned_bytes.h"
#include "turbogr/embedding/local_rows.h"
#include "turbogr/embedding/planned_rows.h"
#include "turbogr/embedding/sharded_rows.h"
#include "turbogr/run/run_options.h"

namespace turbogr::run {

Device table_memory(const Config& config) {
  return config.embedding.memory == "host" ? Device::kPinned : device_of(config);
}

template <class T>
std::unique_ptr<embedding::RowSource<T>> make_ranking_rows(
    const Context& ctx, dist::Communicator& world,
    const std::vector<embedding::TableOptions>& tables, Device memory,
    const train::RankOptions& ranks) {
  if (!ranks.sharded()) return std::make_unique<embedding::LocalRows<T>>(tables, memory);
  return std::make_unique<embedding::ShardedRows<T>>(ctx, ctx, world, tables, memory,
                                                     ranks.layout());
}

template <class T>
std::unique_ptr<embedding::RowSource<T>> plan_ranking_rows(
    const std::vector<embedding::TableOptions>& tables, Device memory,
    const train::RankOptions& ranks) {
  PlannedBytes planned;
  for (const embedding::TableOptions& table : tables) {
    planned.add(memory, embedding::shard_bytes(table, ranks.layout()));
  }
  return std::make_unique<embedding::PlannedRows<T>>(planned, 0);
}

template std::unique_ptr<embedding::RowSource<float>> make_ranking_rows(
    const Context&, dist::Communicator&, const std::vector<embedding::TableOptions>&, Device,
    const train::RankOptions&);
template std::unique_ptr<embedding::RowSource<bf16>> make_ranking_rows(
    const Context&, dist::Communicator&, const std::vector<embedding::TableOptions>&, Device,
    const train::RankOptions&);
template std::unique_ptr<embedding::RowSource<float>> plan_ranking_rows(
    const std::vector<embedding::TableOptions>&, Device, const train::RankOptions&);
template std::unique_ptr<embedding::RowSource<bf16>> plan_ranking_rows(
    const std::vector<embedding::TableOptions>&, Device, const train::RankOptions&);

}  // namespace turbogr::run
