#include "turbogr/plan/memory.h"

#include "turbogr/core/context.h"
#include "turbogr/core/host_memory.h"
#include "turbogr/embedding/sharded_rows.h"
#include "turbogr/run/run_options.h"
#include "turbogr/train/retrieval_trainer.h"

namespace turbogr::plan {
namespace {

// A GPU keeps each layer's bias between pairs of tokens, in f16, and adds up another matrix of the
// size in the backward pass (docs/design.md, "Attention on a GPU").
double pair_matrix_bytes(const model::ModelOptions& model, double capacity) {
  if (model.bias == model::BiasKind::kNone || model.kind != model::ModelKind::kHstu) return 0;
  const double matrix = capacity * (static_cast<double>(model.max_length) + 192);
  return (static_cast<double>(model.layers) + 2) * matrix;
}

template <class T>
RankMemory planned_memory(const run::Config& config, const std::vector<int>& nodes,
                          std::int64_t num_items, std::int64_t capacity) {
  const PlanOnly planning;
  const Context ctx({.threads = 1});
  train::RetrievalOptions options = run::retrieval_options(config, 0, 1, capacity);
  options.ranks = run::rank_options(config, nodes);
  options.plan_only = true;
  // Kept on the host, it is the host's below; a CPU has no other memory to keep it in.
  const bool host_table = options.table_in_host_memory;
  options.table_in_host_memory = false;
  options.negatives.kind = train::NegativeKind::kUniform;  // needs no counts of items
  train::RetrievalTrainer<T> trainer(ctx, options, num_items);
  RankMemory memory;
  memory.device = static_cast<double>(trainer.planned_bytes(ctx).host);
  memory.table = static_cast<double>(trainer.rows().bytes().host);
  memory.activations = static_cast<double>(trainer.model().activation_bytes());
  if (config.train.device == "cuda") {
    const double pairs = pair_matrix_bytes(options.model, static_cast<double>(capacity));
    memory.device += pairs;
    memory.activations += pairs;
  }
  if (config.train.device == "cuda" && nodes.size() > 1) {
    // Rows on their way between devices, of every step in flight.
    const auto flights = options.ranks.schedule == train::StepSchedule::kSerial ||
                                 options.ranks.schedule == train::StepSchedule::kOverlap
                             ? 2.0
                             : 3.0;
    memory.device += flights * static_cast<double>(embedding::exchange_bytes(
                                   train::table_options(options, num_items),
                                   train::touched_capacity(options, num_items)));
  }
  if (host_table) {
    memory.host += memory.table;
    memory.device -= (1 - config.embedding.cache) * memory.table;
  }
  return memory;
}

}  // namespace

RankMemory memory_of(const run::Config& config, const std::vector<int>& nodes,
                     std::int64_t num_items, std::int64_t capacity) {
  if (config.train.dtype == "bf16") {
    return planned_memory<bf16>(config, nodes, num_items, capacity);
  }
  return planned_memory<float>(config, nodes, num_items, capacity);
}

}  // namespace turbogr::plan
