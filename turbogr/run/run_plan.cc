#include "turbogr/run/run_plan.h"

#include "turbogr/core/device_memory.h"
#include "turbogr/core/log.h"
#include "turbogr/core/progress.h"
#include "turbogr/dist/topology.h"

namespace turbogr::run {

void warn_of_warmup(const Config& config, std::int64_t total_steps) {
  if (config.optim.warmup < total_steps || config.optim.warmup == 0) return;
  log::warn(
      "optim.warmup = {} and the run has {} steps: the learning rate never gets up to "
      "optim.lr; lower optim.warmup or train for longer",
      config.optim.warmup, total_steps);
}

void print_store(const TaskParts& parts) {
  const data::Store& store = parts.store;
  print_result("data     {}: {} users, {} items, {} events\n", parts.config.data.store,
               grouped_text(store.num_users()), grouped_text(store.num_items()),
               grouped_text(store.num_events()));
}

void print_ranks(const TaskParts& parts, const dist::LinkChoice& link) {
  const Config& config = parts.config;
  if (parts.share.world == 1) return;
  const train::RankOptions options = rank_options(config, parts.nodes);
  print_result("ranks    {} in {} groups of {}, replicas {}, rows {}; schedule {}, {}\n",
               parts.share.world, options.topology.num_groups(), options.topology.group_size,
               config.dist.replicas, config.dist.placement, schedule_of(config, parts.share.world),
               config.dist.balance ? "balanced by cost" : "not balanced");
  const std::string remark = dist::uneven_machines(
      dist::play_nodes(parts.nodes, static_cast<int>(config.dist.ranks_per_node)),
      static_cast<int>(config.dist.group));
  if (!remark.empty()) log::warn("{}", remark);
  const std::string unused = unused_cores(parts.cores);
  if (!unused.empty() && !config.run.dry_run) log::warn("{}", unused);
  if (!config.run.dry_run && parts.ctx.device() == Device::kCuda) {
    print_result("link     between GPUs {} ({})\n",
                 link.link == dist::DeviceLink::kNccl ? "by NCCL" : "staged through host memory",
                 link.reason);
  }
}

void print_compute(const TaskParts& parts) {
  if (parts.ctx.device() == Device::kCuda) {
    const DeviceMemory memory = device_memory();
    print_result("compute  cuda {}; {:.1f} of {:.1f} MiB of the GPU free after planning\n",
                 parts.config.train.dtype, mib(memory.free), mib(memory.total));
  } else {
    print_result("compute  {} {}, {} threads, {} kernels\n", parts.config.train.device,
                 parts.config.train.dtype, parts.ctx.threads(), name_of(parts.ctx.simd()));
  }
}

}  // namespace turbogr::run
