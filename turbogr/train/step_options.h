// What a training step of the retrieval task is made of.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/data/sequence_parts.h"
#include "turbogr/dist/device_communicator.h"
#include "turbogr/dist/topology.h"
#include "turbogr/embedding/sharded_rows.h"
#include "turbogr/eval/retrieval_features.h"
#include "turbogr/model/model.h"
#include "turbogr/optim/schedule.h"
#include "turbogr/train/negative_options.h"

namespace turbogr::train {

// When the stages of a step run (schedules.h).
enum class StepSchedule : std::uint8_t { kSerial, kOverlap, kExactPrefetch, kSemiAsync };
StepSchedule step_schedule_from_name(std::string_view name);

// How ranks share the work. One rank with all defaults holds its table itself.
struct RankOptions {
  StepSchedule schedule = StepSchedule::kSerial;
  std::int64_t delay = 1;   // semi_async: 0 is overlap
  std::int64_t warmup = 0;  // semi_async: steps without delay
  dist::Topology topology;
  embedding::Placement placement = embedding::Placement::kRoundRobin;
  embedding::ReplicaMode replicas = embedding::ReplicaMode::kExact;
  std::int64_t average_every = 1;  // average: steps between means
  DType row_wire = DType::kF32;
  DType gradient_wire = DType::kF32;
  std::int64_t bucket_bytes = 1 << 20;
  // Rows move over a device's communicator: always on a GPU, and on a CPU to try it there.
  bool device_rows = false;
  dist::DeviceLink link = dist::DeviceLink::kStaged;
  dist::WaitOptions wait;  // of NCCL's collectives

  embedding::RankLayout layout() const {
    return {topology,      placement,   replicas, average_every, row_wire,
            gradient_wire, device_rows, link,     wait};
  }
  // Whether rows are somebody else's to ask for: one rank does so to try a link, or itself.
  bool sharded() const {
    return topology.group_of.size() > 1 || device_rows || link == dist::DeviceLink::kNccl;
  }
};

struct RetrievalOptions {
  model::ModelOptions model;
  model::ModelMemory memory;
  data::SequenceParts parts;
  double temperature = 0.05;
  NegativeOptions negatives;
  AdamWSettings dense;  // of the dense weights; the step is set by the trainer
  embedding::SparseOptimiser table_optimiser = embedding::SparseOptimiser::kAdamW;
  AdamWSettings table;
  DType table_dtype = DType::kF32;  // or bf16, f16
  // GPU: the item table and its optimiser's state stay in pinned host memory.
  bool table_in_host_memory = false;
  double table_cache = 0;  // then: the share of its rows, used most, that the device has copies of
  ops::RowStart table_start;
  eval::RetrievalFeatures features;  // beside the item; none: a token is its item alone
  std::int64_t most_sequences = 0;  // of a batch; asked for where features stand before the history
  optim::Schedule schedule;
  double clip = 0;  // of the global gradient norm; 0: none
  bool decay_vectors = false;
  std::int64_t accumulate = 1;
  RankOptions ranks;
  bool plan_only = false;  // the table's memory is counted, not taken
  std::uint64_t seed = 1;
};

Device table_device(const Context& ctx, const RetrievalOptions& options);
embedding::TableOptions table_options(const RetrievalOptions& options, std::int64_t num_items);

// Rows of a table in host memory that the device has copies of.
std::int64_t cached_rows(const RetrievalOptions& options, std::int64_t num_items);

// Of one batch of a step.
std::int64_t negatives_a_batch(const RetrievalOptions& options);
// Every token touches its item, its target and its negatives, and no more rows than there are.
std::int64_t touched_capacity(const RetrievalOptions& options, std::int64_t num_items);
// Of a batch, the tokens before histories; and the memory of a model that has them.
std::int64_t prefix_tokens(const RetrievalOptions& options);
model::ModelMemory model_memory(const RetrievalOptions& options);
// What a step reads of features, and the most distinct rows that makes, of all their tables.
eval::FeatureSize feature_size(const RetrievalOptions& options, std::int64_t num_items);
std::int64_t most_feature_rows(const RetrievalOptions& options, std::int64_t num_items);
// The item table and those of features.
std::vector<embedding::TableOptions> all_tables(const RetrievalOptions& options,
                                                std::int64_t num_items);
// The softmax's options are the same forward and backward.
ops::SoftmaxOptions softmax_options(const RetrievalOptions& options);

struct StepResult {
  std::int64_t step = 0;     // counted from 1
  double loss = 0;           // mean over the tokens of the step that predict
  double gradient_norm = 0;  // before clipping
  double rate = 0;
  std::int64_t tokens = 0;
  std::int64_t predicting = 0;  // tokens the loss counts
  bool finite = true;           // else nothing was updated
};

}  // namespace turbogr::train
