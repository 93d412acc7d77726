#include "turbogr/plan/memory.h"

#include <algorithm>
#include <type_traits>

#include "turbogr/core/context.h"
#include "turbogr/core/host_memory.h"
#include "turbogr/embedding/sharded_rows.h"
#include "turbogr/embedding/sharding.h"
#include "turbogr/model/hopper_memory.h"
#include "turbogr/run/retrieval_setup.h"
#include "turbogr/run/run_options.h"
#include "turbogr/train/negative_sampler.h"
#include "turbogr/train/retrieval_trainer.h"
#include "turbogr/train/step_in_flight.h"
#include "turbogr/train/step_inputs.h"

namespace turbogr::plan {
namespace {

// Of each rank, how much fewer bytes its shards of all tables have, state and all, than those of
// the rank with most. That is the first of a group, which the trainer below is.
std::vector<double> fewer_bytes(const train::RetrievalOptions& options, std::int64_t num_items) {
  const dist::Topology& topology = options.ranks.topology;
  std::vector<double> fewer(topology.place_of.size(), 0);
  for (const embedding::TableOptions& table : train::all_tables(options, num_items)) {
    const embedding::RankLayout layout = options.ranks.layout();
    const embedding::Sharding shards(table.rows, topology.group_size, layout.placement);
    const std::int64_t most = shards.rows_of(0);
    if (most == 0) continue;
    const double row =
        static_cast<double>(embedding::shard_bytes(table, layout)) / static_cast<double>(most);
    for (std::size_t rank = 0; rank < fewer.size(); ++rank) {
      fewer[rank] += row * static_cast<double>(most - shards.rows_of(topology.place_of[rank]));
    }
  }
  return fewer;
}

// Of a batch on the host (data/batch.h): items, targets, two times and a key a token, actions
// where they are asked for; five lists a sequence.
double batch_bytes(const run::Config& config, const RunShape& shape) {
  return static_cast<double>(shape.tokens) * (5 * 8 + (config.model.actions ? 4 : 0)) +
         static_cast<double>(shape.sequences) * 5 * 8;
}

// What a sampler keeps of every item: a class by its count, and by popularity a slot of a table.
double sampler_bytes(const train::NegativeOptions& negatives, std::int64_t num_items) {
  if (negatives.kind == train::NegativeKind::kUniform) return 0;
  const bool slots = train::negative_parts(negatives)[1] > 0;
  return static_cast<double>(num_items) * (4 + (slots ? sizeof(ops::AliasSlot) : 0));
}

int row_memories(train::StepSchedule schedule) {
  return schedule == train::StepSchedule::kSerial    ? 1
         : schedule == train::StepSchedule::kOverlap ? 2
                                                     : 3;
}

template <class T>
RankMemory planned_memory(const run::Config& config, const std::vector<int>& nodes,
                          const RunShape& shape) {
  const PlanOnly planning;
  const Context ctx({.threads = 1});
  const bool on_gpu = config.train.device == "cuda";
  train::RetrievalOptions options = run::retrieval_options(config, 0, 1, shape.tokens);
  options.ranks = run::rank_options(config, nodes);
  options.plan_only = true;
  if (shape.features != nullptr && !shape.features->empty()) {
    run::add_features(shape.features->options(), shape.sequences, options);
  }
  const double sampler = sampler_bytes(options.negatives, shape.num_items);
  // Kept on the host, it is the host's below; a CPU has no other memory to keep it in.
  const bool host_table = options.table_in_host_memory;
  options.table_in_host_memory = false;
  options.negatives.kind = train::NegativeKind::kUniform;  // the sampler is counted above
  options.negatives.trained_only = false;
  train::RetrievalTrainer<T> trainer(ctx, options, shape.num_items);
  RankMemory memory;
  memory.device = static_cast<double>(trainer.planned_bytes(ctx).host);
  memory.table = static_cast<double>(trainer.rows().bytes().host);
  memory.fewer = nodes.size() > 1 ? fewer_bytes(options, shape.num_items) : std::vector<double>(1);
  memory.activations = static_cast<double>(trainer.model().activation_bytes());
  const double kept = static_cast<double>(options.accumulate) *
                      static_cast<double>(trainer.queue_length() + config.data.prefetch + 1);
  memory.host_batches = kept * batch_bytes(config, shape);
  if (!on_gpu) {  // all of it is the host's
    memory.host_steps = sampler;
    memory.device += memory.host_batches + sampler;
    memory.host = memory.device;
    memory.one_memory = true;
    return memory;
  }
  const int rows = row_memories(options.ranks.schedule);
  const double row_bytes =
      rows *
      static_cast<double>(train::StepRowMemory<T>(ctx, options, shape.num_items).bytes().host);
  const double steps = static_cast<double>(trainer.step_bytes().host) - row_bytes;
  memory.device -= steps;
  // A GPU's host prepares a step while the device computes the one before.
  memory.host_steps =
      steps * std::max(rows, 2) / rows + sampler +
      static_cast<double>(train::StepInputs<T>(ctx, options, shape.num_items).bytes().host);
  // Only bf16 has Hopper's kernels; the others take no memory for pairs.
  const double attention =
      std::is_same_v<T, bf16>
          ? static_cast<double>(model::hopper_attention_bytes(options.model, options.memory))
          : 0;
  memory.device += attention;
  memory.activations += attention;
  if (nodes.size() > 1) {
    // Rows on their way between devices, of every step in flight.
    memory.device +=
        std::max(rows, 2) * static_cast<double>(embedding::exchange_bytes(
                                train::table_options(options, shape.num_items),
                                train::touched_capacity(options, shape.num_items) +
                                    train::most_feature_rows(options, shape.num_items)));
  }
  if (host_table) {
    // One rank alone keeps copies of the rows used most on its device.
    const double copies = nodes.size() == 1 ? config.embedding.cache : 0;
    memory.host_table = memory.table;
    memory.device -= (1 - copies) * memory.table;
  }
  memory.host = memory.host_steps + memory.host_batches + memory.host_table;
  return memory;
}

}  // namespace

RankMemory memory_of(const run::Config& config, const std::vector<int>& nodes,
                     const RunShape& shape) {
  return config.train.dtype == "bf16" ? planned_memory<bf16>(config, nodes, shape)
                                      : planned_memory<float>(config, nodes, shape);
}

}  // namespace turbogr::plan
