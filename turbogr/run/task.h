// What a run trains: a task with its data, model, steps and figures. The run around it
// (training_run.cc: folder, log, checkpoints, resuming, signals, early stopping) is the same for
// every task. retrieval_task.h and ranking_task.h are the two there are.
//
//   std::unique_ptr<Task> task = make_ranking_task(parts);
//   while (task->read()) { task->submit(false); ... task->finish() ... }
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/core/context.h"
#include "turbogr/core/named_tensor.h"
#include "turbogr/data/batching.h"
#include "turbogr/data/holdout.h"
#include "turbogr/data/store.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/dist/device_communicator.h"
#include "turbogr/embedding/item_table.h"
#include "turbogr/embedding/sharding.h"
#include "turbogr/model/flops.h"
#include "turbogr/run/calibration.h"
#include "turbogr/run/config.h"
#include "turbogr/run/peak_rate.h"
#include "turbogr/run/rank_cores.h"
#include "turbogr/run/run_options.h"
#include "turbogr/run/step_count.h"
#include "turbogr/train/dense_tensors.h"
#include "turbogr/train/stage_clock.h"
#include "turbogr/train/step_options.h"

namespace turbogr::run {

// What a task is made with. All outlive it.
struct TaskParts {
  const Config& config;
  dist::Communicator& world;
  const data::Store& store;
  const Context& ctx;
  Share share;
  const std::vector<int>& nodes;  // the machine of each rank
  const RankCores& cores;
};

// What the host remembers of a step until its result is read.
struct Submitted {
  model::Flops flops;
  std::vector<std::int64_t> users;  // the first few
};

// This rank's part of a table.
struct TaskTable {
  std::string name;
  embedding::ItemTable& part;
  const embedding::Sharding& sharding;
  int index = 0;
};

struct Evaluation {
  std::vector<std::pair<std::string, double>> figures;  // of quality
  std::vector<std::pair<std::string, double>> counts;   // beside them in metrics.jsonl
  std::vector<TaskCalibration> calibration;             // likewise; of tasks that have signals
  std::string of;                                       // "6,040 users"
  std::string remark;                                   // lines for people, or empty
};

class Task {
 public:
  virtual ~Task() = default;

  // Before anything is trained.
  virtual StepCount steps() const = 0;
  virtual void print_plan() const = 0;
  virtual std::vector<std::int64_t> lengths() const = 0;  // of an epoch's sequences
  // Of an epoch, or held out; 0 of a task that knows none.
  virtual std::int64_t samples(data::Split /*split*/) const { return 0; }
  virtual void check_evaluation() const = 0;  // throws when there is nothing to evaluate on
  virtual PeakRate make_peak() const = 0;

  // Data. read() takes what the next step is made of; false, once, at the end of an epoch.
  virtual bool read() = 0;
  virtual data::LoaderState position() const = 0;
  virtual void restore(const data::LoaderState& position) = 0;

  // Steps. submit() trains on what was read; `stop` is this rank's wish to end. As
  // RetrievalTrainer's.
  virtual void initialise() = 0;
  virtual void refresh() = 0;
  virtual Submitted submit(bool stop) = 0;
  virtual train::StepResult finish() = 0;
  virtual std::int64_t pending() const = 0;
  virtual std::int64_t queue_length() const = 0;
  virtual bool stop_asked() const = 0;
  virtual std::int64_t steps_done() const = 0;
  virtual void set_steps_done(std::int64_t steps) = 0;
  virtual train::StageTimes times() const = 0;
  virtual const train::RankOptions& ranks() const = 0;
  virtual std::vector<train::LargestTensor> largest() const = 0;

  // State.
  virtual std::vector<NamedTensor> weights() = 0;
  virtual std::vector<NamedTensor> moments() = 0;
  virtual std::vector<TaskTable> tables() = 0;
  virtual void settle() = 0;  // before tables are read as a whole
  virtual std::vector<checkpoint::CheckpointShard> other_shards() = 0;
  // Of a checkpoint to go on from: throws where it is of other data. Of one to start from: reads
  // what it knows of this data; says how much.
  virtual void check_saved(const checkpoint::Checkpoint& saved) = 0;
  virtual std::string start_from(const checkpoint::Checkpoint& saved) = 0;

  // Figures. Collective.
  virtual Evaluation evaluate(data::Split split) = 0;
  // After a run: what its figures are to be compared with, as lines and a warning for people.
  struct Baseline {
    std::string lines, warning;
  };
  virtual Baseline compare(data::Split split) = 0;
};

std::unique_ptr<Task> make_retrieval_task(const TaskParts& parts);
std::unique_ptr<Task> make_ranking_task(const TaskParts& parts);

// How the GPUs of a run reach each other, where there is anything to choose. Collective.
dist::LinkChoice choose_link(const TaskParts& parts);

std::vector<std::int64_t> first_users(const std::vector<std::int64_t>& users);

// Throws OutOfMemory. What is planned is not all: threads, code that oneDNN makes at its first
// products, files.
void check_room_to_work();

bool less_is_better(const std::string& metric);
// Of an evaluation's figures the one that `metric` names, so that more is better.
std::optional<double> score_of(const Evaluation& evaluation, const std::string& metric);
std::string figures_text(const std::vector<std::pair<std::string, double>>& figures);

}  // namespace turbogr::run
