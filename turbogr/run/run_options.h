// From a Config to what the trainer and the loaders take: the one place where keys get their
// meaning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "turbogr/data/loader.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/run/config.h"
#include "turbogr/run/idle_keys.h"
#include "turbogr/train/retrieval_trainer.h"

namespace turbogr::run {

Device device_of(const Config& config);
// The same; ranks of a machine take its GPUs in turn.
Device device_for_rank(const Config& config, const dist::Communicator& world);

std::int64_t num_signals(const data::Store& store);  // kinds of action
std::int64_t feed_forward_width(const ModelConfig& model);
model::ModelOptions model_options(const Config& config, std::int64_t num_signals);

// `total_steps` is where a decaying learning rate ends; `capacity` the tokens of the largest batch.
train::RetrievalOptions retrieval_options(const Config& config, std::int64_t num_signals,
                                          std::int64_t total_steps, std::int64_t capacity);

// How often each item is a target in an epoch; empty where no sampler, cache or feature asks.
std::vector<std::int64_t> training_counts(const Config& config, const data::Store& store);

// With dist.balance: a step's windows go to ranks by what they cost the model. Planned by every
// rank alike, in the loader's background.
void share_by_cost(const Config& config, const model::ModelOptions& model, data::PlanOptions& plan);

// Which of how many ranks a loader serves.
struct Share {
  int rank = 0;
  int world = 1;
};
// Which windows make up a step of `world` ranks, and who gets which.
data::PlanOptions plan_options(const Config& config, std::int64_t num_signals, int world);
// Of a rank's share of every step.
data::LoaderOptions train_loader_options(const Config& config, const data::Store& store,
                                         const Share& share = {});
// Evaluation batches hold as many users as `capacity` tokens allow.
data::LoaderOptions eval_loader_options(const Config& config, const data::Store& store,
                                        data::Split split, std::int64_t capacity,
                                        const Share& share = {});

// Where its tables are: the device's own memory, or pinned memory of its host that it reads over
// the link.
Device table_memory(const Config& config);

// How a run's ranks are laid out. nodes: the machine of each rank.
train::RankOptions rank_options(const Config& config, const std::vector<int>& nodes);
RunLayout layout_of(const Config& config, const train::RankOptions& ranks);
// What train.schedule = "auto" means: the fastest that gives the bits of serial.
std::string schedule_of(const Config& config, int world);

std::vector<data::Split> held_out(const Config& config);  // what a run is evaluated on

// Throws when a held-out split is empty, and warns when no figure can pick the best checkpoint.
void check_evaluation(const Config& config, const data::Store& store);

// Throws when the config asks for what this build or this store does not have.
void check_run(const Config& config, const data::Store& store);

}  // namespace turbogr::run
