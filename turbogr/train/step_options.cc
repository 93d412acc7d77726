#include "turbogr/train/step_options.h"

#include <algorithm>
#include <numeric>

#include "turbogr/core/check.h"

namespace turbogr::train {

StepSchedule step_schedule_from_name(std::string_view name) {
  if (name == "serial") return StepSchedule::kSerial;
  if (name == "overlap") return StepSchedule::kOverlap;
  if (name == "exact_prefetch") return StepSchedule::kExactPrefetch;
  TGR_CHECK(name == "semi_async", "unknown schedule '", name,
            "'; use serial, overlap, exact_prefetch or semi_async");
  return StepSchedule::kSemiAsync;
}

Device table_device(const Context& ctx, const RetrievalOptions& options) {
  return ctx.device() == Device::kCuda && options.table_in_host_memory ? Device::kPinned
                                                                       : ctx.device();
}

embedding::TableOptions table_options(const RetrievalOptions& options, std::int64_t num_items) {
  return {.rows = num_items,
          .width = options.model.width,
          .optimiser = options.table_optimiser,
          .start = options.table_start,
          .seed = options.seed,
          .dtype = options.table_dtype,
          .half_copy = options.negatives.half_table};
}

std::int64_t cached_rows(const RetrievalOptions& options, std::int64_t num_items) {
  const bool cached = options.table_in_host_memory && !options.ranks.sharded() &&
                      !options.negatives.half && options.features.tables.empty();
  return cached ? static_cast<std::int64_t>(options.table_cache * static_cast<double>(num_items))
                : 0;
}

std::int64_t negatives_a_batch(const RetrievalOptions& options) {
  const NegativeOptions& negatives = options.negatives;
  return negatives.shared ? negatives.count : options.memory.capacity * negatives.count;
}

std::int64_t touched_capacity(const RetrievalOptions& options, std::int64_t num_items) {
  return std::min(num_items,
                  options.accumulate * (2 * options.memory.capacity + negatives_a_batch(options)));
}

std::int64_t prefix_tokens(const RetrievalOptions& options) {
  return options.features.num_prefix() * options.most_sequences;
}

model::ModelMemory model_memory(const RetrievalOptions& options) {
  model::ModelMemory memory = options.memory;
  memory.capacity += prefix_tokens(options);
  return memory;
}

eval::FeatureSize feature_size(const RetrievalOptions& options, std::int64_t num_items) {
  const bool items = options.features.encodes_items();
  return {.items = items,
          .most_items = items ? touched_capacity(options, num_items) : 0,
          .batches = options.accumulate,
          .most_tokens = options.memory.capacity,
          .most_sequences = options.most_sequences};
}

std::int64_t most_feature_rows(const RetrievalOptions& options, std::int64_t num_items) {
  if (options.features.empty()) return 0;
  const std::vector<std::int64_t> most = model::most_feature_ids(
      options.features.table_rows(),
      eval::feature_lists(options.features, feature_size(options, num_items)));
  return std::accumulate(most.begin(), most.end(), std::int64_t{0});
}

std::vector<embedding::TableOptions> all_tables(const RetrievalOptions& options,
                                                std::int64_t num_items) {
  std::vector<embedding::TableOptions> tables = {table_options(options, num_items)};
  tables.insert(tables.end(), options.features.tables.begin(), options.features.tables.end());
  return tables;
}

ops::SoftmaxOptions softmax_options(const RetrievalOptions& options) {
  return {.temperature = options.temperature,
          .normalize = true,
          .sharing = options.negatives.sharing,
          .sharing_factor = options.negatives.sharing_factor};
}

}  // namespace turbogr::train
