#include "turbogr/run/serving_rows.h"

#include <utility>

#include "turbogr/core/device_memory.h"
#include "turbogr/dist/device_communicator.h"
#include "turbogr/dist/topology.h"
#include "turbogr/run/run_options.h"
#include "turbogr/train/make_rows.h"

namespace turbogr::run {

template <class T>
std::unique_ptr<embedding::RowSource<T>> serving_rows(const Context& ctx, dist::Communicator& world,
                                                      const Config& config,
                                                      std::vector<embedding::TableOptions> tables) {
  for (embedding::TableOptions& table : tables) {
    table.optimiser = embedding::SparseOptimiser::kSgd;
    table.half_copy = false;
  }
  const bool gpu = ctx.device() == Device::kCuda;
  train::RankOptions ranks;
  ranks.topology = dist::make_topology(world.nodes(), world.size());
  ranks.wait.timeout_seconds = config.dist.timeout;
  if (world.size() > 1 && gpu) {
    ranks.link = dist::choose_link(world, config.dist.link, device_id()).link;
  }
  return train::make_rows<T>(ctx, ctx, world,
                             {.tables = std::move(tables),
                              .memory = gpu ? table_memory(config) : ctx.device(),
                              .ranks = ranks});
}

template std::unique_ptr<embedding::RowSource<float>> serving_rows(
    const Context&, dist::Communicator&, const Config&, std::vector<embedding::TableOptions>);
template std::unique_ptr<embedding::RowSource<bf16>> serving_rows(
    const Context&, dist::Communicator&, const Config&, std::vector<embedding::TableOptions>);

}  // namespace turbogr::run
