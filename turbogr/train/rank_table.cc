// The rank pipeline's table as a whole, and what all of it takes.
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/train/rank_pipeline.h"

namespace turbogr::train {

std::size_t flights_at_a_time(StepSchedule schedule) {
  return schedule == StepSchedule::kSerial ? 1 : schedule == StepSchedule::kOverlap ? 2 : 3;
}

template <class T>
void RankPipeline<T>::assemble(bool everywhere) {
  TGR_CHECK(pending() == 0, pending(), " steps are on their way; finish them first");
  average_replicas(ctx_);
  const bool here = everywhere || world_.rank() == 0;
  embedding::ItemTable& own = table_.own();
  // An evaluation reads weights alone.
  const embedding::SparseOptimiser optimiser =
      everywhere ? embedding::SparseOptimiser::kSgd : table_.options().optimiser;
  embedding::ItemTable whole(here ? trainer_.num_items() : 0, table_.options().width, optimiser);
  // Groups are replicas: that of rank 0, who is its first, is enough for a checkpoint.
  const int first_group = options_.topology.group_of[0];
  const int own_group = options_.topology.group_of[static_cast<std::size_t>(world_.rank())];
  if (everywhere || own_group == first_group) {
    const auto gather = [&](const Tensor& part, Tensor& into) {
      const int root = everywhere ? -1 : 0;
      if (part.device() == Device::kCpu) {
        table_.gather_whole(behind_.circles(), part, root, into);
      } else {
        table_.gather_whole(behind_.circles(), to_host(ctx_, part), root, into);
      }
    };
    gather(own.weight_tensor(), whole.weight_tensor());
    if (optimiser == embedding::SparseOptimiser::kAdamW) {
      gather(own.first_moment(), whole.first_moment());
    }
    if (optimiser != embedding::SparseOptimiser::kSgd) {
      gather(own.second_moment(), whole.second_moment());
    }
  }
  if (everywhere && ctx_.device() == Device::kCuda) {
    embedding::ItemTable placed(whole.rows(), whole.width(), optimiser, ctx_.device());
    copy_tensor(ctx_, placed.weight_tensor(), whole.weight_tensor());
    whole = std::move(placed);
  }
  trainer_.table() = std::move(whole);
}

template <class T>
void RankPipeline<T>::dismiss() {
  trainer_.table() = embedding::ItemTable(0, table_.options().width, table_.options().optimiser);
}

template <class T>
void RankPipeline<T>::take_whole() {
  embedding::ItemTable& whole = trainer_.table();
  embedding::ItemTable& own = table_.own();
  const auto take = [&](const Tensor& from, Tensor& part) {
    if (part.size() == 0) return;
    if (part.device() == Device::kCpu) return table_.take_part(from, part);
    Tensor host(part.dtype(), part.shape());
    table_.take_part(from, host);
    copy_tensor(ctx_, part, host);
  };
  take(whole.weight_tensor(), own.weight_tensor());
  take(whole.first_moment(), own.first_moment());
  take(whole.second_moment(), own.second_moment());
  replicas_differ_ = false;
}

template <class T>
std::size_t RankPipeline<T>::bytes() const {
  const PlannedBytes slot =
      StepSlot<T>::bytes_of(ctx_.device(), trainer_.options(), trainer_.num_items());
  std::size_t total = table_.bytes() + reducer_->bytes();
  for (const std::unique_ptr<Flight>& each : slots_)
    total += slot.gpu + slot.host + each->exchange.bytes() + each->urgent_exchange.bytes() +
             each->others_exchange.bytes();
  return total;
}

template <class T>
PipelineMemory pipeline_memory(const RetrievalOptions& trainer, std::int64_t num_items,
                               std::int64_t dense_weights, const PipelineOptions& options) {
  const embedding::Sharding sharding(num_items, options.topology.group_size, options.placement);
  const auto rows = static_cast<std::size_t>(sharding.rows_of(0));
  const auto width = static_cast<std::size_t>(trainer.model.width);
  PipelineMemory memory;
  const std::size_t row = width * sizeof(float);
  switch (trainer.table_optimiser) {
    case embedding::SparseOptimiser::kAdamW:
      memory.table = 3 * rows * row;
      break;
    case embedding::SparseOptimiser::kAdaGrad:
      memory.table = rows * (row + sizeof(float));
      break;
    case embedding::SparseOptimiser::kSgd:
      memory.table = rows * row;
      break;
  }
  const Device device = options.device_rows ? Device::kCuda : Device::kCpu;
  const PlannedBytes slot = StepSlot<T>::bytes_of(device, trainer, num_items);
  memory.slots = flights_at_a_time(options.schedule) * slot.on(device);
  if (device == Device::kCuda) memory.host = flights_at_a_time(options.schedule) * slot.host;
  if (options.device_rows) {
    // What is sent, received with room behind it, and summed: as many rows as a step touches when
    // ranks ask each other for equally many.
    const auto touched = static_cast<std::size_t>(touched_capacity(trainer, num_items));
    memory.slots += flights_at_a_time(options.schedule) * 4 * touched * row;
  }
  memory.buckets = static_cast<std::size_t>(dense_weights) * sizeof(float);
  return memory;
}

#define TGR_INSTANTIATE(T)                                                                        \
  template PipelineMemory pipeline_memory<T>(const RetrievalOptions&, std::int64_t, std::int64_t, \
                                             const PipelineOptions&);                             \
  template void RankPipeline<T>::assemble(bool);                                                  \
  template void RankPipeline<T>::dismiss();                                                       \
  template void RankPipeline<T>::take_whole();                                                    \
  template std::size_t RankPipeline<T>::bytes() const;
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::train
