// What a run prints before it starts: the plan, and the memory it takes.
#include <algorithm>

#include "turbogr/core/device_memory.h"
#include "turbogr/core/log.h"
#include "turbogr/dist/topology.h"
#include "turbogr/run/step_count.h"
#include "turbogr/run/training_run_class.h"

namespace turbogr::train {

template <class T>
void TrainingRun<T>::plan_steps() {
  data::LoaderOptions options = train_loader_options(config_, store_, share_);
  options.plan.reallocate = nullptr;  // moves windows between ranks, not between steps
  const StepCount count = count_steps(data::make_windows(store_, options.windows), options.plan,
                                      config_.train.accumulate, config_.train.epochs);
  const std::int64_t by_steps = config_.train.steps;
  steps_per_epoch_ = count.an_epoch;
  total_steps_ = by_steps == 0 || count.in_all == 0 ? std::max(by_steps, count.in_all)
                                                    : std::min(by_steps, count.in_all);
}

template <class T>
void TrainingRun<T>::print_plan() const {
  const auto& parameters = trainer_->model().parameters();
  if (config_.optim.warmup >= total_steps_ && config_.optim.warmup > 0) {
    log::warn(
        "optim.warmup = {} and the run has {} steps: the learning rate never gets up to "
        "optim.lr; lower optim.warmup or train for longer",
        config_.optim.warmup, total_steps_);
  }
  print_result("data     {}: {} users, {} items, {} events\n", config_.data.store,
               grouped_text(store_.num_users()), grouped_text(store_.num_items()),
               grouped_text(store_.num_events()));
  print_result("train    {} sequences, {} tokens an epoch; {} steps an epoch, {} in all\n",
               grouped_text(loader_.num_windows()), grouped_text(loader_.num_tokens()),
               grouped_text(steps_per_epoch_), grouped_text(total_steps_));
  print_result(
      "model    {} {} layers x {} wide, {} heads, bias {}; {} dense weights, {} in the item "
      "table\n",
      config_.model.kind, config_.model.layers, config_.model.width, config_.model.heads,
      config_.model.bias, grouped_text(parameters.count()),
      grouped_text(store_.num_items() * config_.model.width));
  if (share_.world > 1) print_ranks();
  print_memory();
  if (ctx_.device() == Device::kCuda) {
    const DeviceMemory memory = device_memory();
    print_result("compute  cuda {}; {:.1f} of {:.1f} MiB of the GPU free after planning\n",
                 config_.train.dtype, mib(memory.free), mib(memory.total));
  } else {
    print_result("compute  {} {}, {} threads, {} kernels\n", config_.train.device,
                 config_.train.dtype, ctx_.threads(), name_of(ctx_.simd()));
  }
}

template <class T>
void TrainingRun<T>::print_ranks() const {
  const RankOptions options = rank_options(config_, nodes_);
  print_result("ranks    {} in {} groups of {}, replicas {}, rows {}; schedule {}, {}\n",
               share_.world, options.topology.num_groups(), options.topology.group_size,
               config_.dist.replicas, config_.dist.placement, schedule_of(config_, share_.world),
               config_.dist.balance ? "balanced by cost" : "not balanced");
  const std::string remark =
      dist::uneven_machines(dist::play_nodes(nodes_, static_cast<int>(config_.dist.ranks_per_node)),
                            static_cast<int>(config_.dist.group));
  if (!remark.empty()) log::warn("{}", remark);
  const std::string unused = unused_cores(cores_);
  if (!unused.empty() && !config_.run.dry_run) log::warn("{}", unused);
  if (!config_.run.dry_run && ctx_.device() == Device::kCuda) {
    print_result("link     between GPUs {} ({})\n",
                 link_.link == dist::DeviceLink::kNccl ? "by NCCL" : "staged through host memory",
                 link_.reason);
  }
}

template <class T>
void TrainingRun<T>::print_memory() const {
  const Device device = ctx_.device();
  const PlannedBytes bytes = trainer_->planned_bytes(ctx_);
  const std::size_t planned = bytes.on(device);
  const std::size_t activations = trainer_->model().activation_bytes();
  const std::size_t workspace = ctx_.workspace().capacity();
  const std::size_t table = trainer_->rows().bytes().on(device);
  const std::size_t steps = trainer_->step_bytes().on(device);
  print_result(
      "memory   {:.1f} MiB{} planned: {:.1f} activations, {:.1f} workspace, {:.1f} item table "
      "and its state, {:.1f} a step's negatives and rows, {:.1f} dense weights, their state and "
      "inputs\n",
      mib(planned), share_.world > 1 ? " a rank" : "", mib(activations), mib(workspace), mib(table),
      mib(steps), mib(planned - activations - workspace - table - steps));
  if (device != Device::kCuda) return;  // all of it, and printed
  print_result("         and {:.1f} MiB of the host's: negatives drawn, inputs{}\n",
               mib(bytes.host),
               config_.embedding.memory == "host" ? ", the item table and its state" : "");
}

template <class T>
std::vector<std::int64_t> TrainingRun<T>::window_lengths() const {
  std::vector<std::int64_t> lengths;
  for (const data::Window& window :
       data::make_windows(store_, train_loader_options(config_, store_).windows)) {
    lengths.push_back(window.length);
  }
  return lengths;
}

template class TrainingRun<float>;
template class TrainingRun<bf16>;

}  // namespace turbogr::train
