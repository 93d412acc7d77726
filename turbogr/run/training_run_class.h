// One training run: what `turbogr train` does from the plan it prints to the last evaluation. The
// loop is in training_run.cc; run_state.cc and run_figures.cc hold what is saved and resumed, and
// what is logged and evaluated. What is trained is the task's (task.h).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "turbogr/checkpoint/checkpoint_writer.h"
#include "turbogr/checkpoint/shared_checkpoint.h"
#include "turbogr/core/context.h"
#include "turbogr/core/trace.h"
#include "turbogr/data/interrupt.h"
#include "turbogr/data/store.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/run/config.h"
#include "turbogr/run/early_stopping.h"
#include "turbogr/run/metrics.h"
#include "turbogr/run/mllog.h"
#include "turbogr/run/peak_rate.h"
#include "turbogr/run/rank_cores.h"
#include "turbogr/run/run_folder.h"
#include "turbogr/run/run_options.h"
#include "turbogr/run/task.h"
#include "turbogr/run/training_progress.h"
#include "turbogr/run/training_run.h"
#include "turbogr/run/watchdog.h"

namespace turbogr::run {

// What has been done since the last line of figures.
struct Window {
  double loss_sum = 0;  // over tokens that predict
  std::int64_t predicting = 0;
  std::int64_t tokens = 0;
  double seconds = 0;
  model::Flops flops;
  train::StageTimes stages;  // of the trainer when it began
};

class TrainingRun {
 public:
  TrainingRun(const Config& config, const std::string& command, dist::Communicator& world,
              const RunControl& control);

  RunEnd run();

 private:
  static Share share_of(const Config& config, const dist::Communicator& world);

  // A dry run for other ranks than there are plays machines, or has all on one.
  static std::vector<int> nodes_of(const Config& config, const dist::Communicator& world);

  bool leads() const { return world_.rank() == 0; }
  bool prints() const { return leads() && !control_.quiet; }

  void open_files(std::optional<std::int64_t> resumed);
  void make_writer();

  Trace* trace_of(const Config& config);

  // One file for all ranks. Clocks of machines differ: they are set by the end of a barrier.
  void write_trace();

  // The step gone on from; nothing when there is none and the run begins again.
  std::optional<std::int64_t> resume();

  void start_from();
  void read_tables(const checkpoint::Checkpoint& saved, checkpoint::TableParts wanted);

  RunEnd train();

  // Over several ranks all must end at the same step, whoever heard the signal.
  bool interrupted() const { return world_.size() > 1 ? task_->stop_asked() : data::interrupted(); }
  bool pausing() const { return control_.pause_after > 0 && epoch_ >= control_.pause_after; }

  // The smaller of steps and epochs ends a run, or patience that ran out; total_steps_, which the
  // progress and the learning rate go by, is an estimate when the run is very long.
  bool finished() const;

  // Reads results until no more than `left` steps are on their way.
  void count_seconds();
  void finish_steps(std::int64_t left);

  // Says now and then which rank the others wait for.
  void watch(std::int64_t step);

  // What waits for the device happens only where it must.
  void after_step();

  void report_bad_step(const train::StepResult& result, const Submitted& step);

  double epochs_done() const;

  void log_window(const train::StepResult& result);

  void begin_window();

  void write(const MetricRecord& record);
  std::int64_t samples_done() const { return task_->steps_done() * config_.train.batch; }

  void end_epoch();

  // Evaluates the held-out splits; returns the validation score that picks the best checkpoint.
  // Where there is a validation split the test split waits for the end, so that nobody chooses by
  // it.
  std::optional<double> evaluate_all();

  // An evaluation during training: its score, counted against train.patience.
  std::optional<double> evaluate_and_count();

  // The end of a run: the best checkpoint, which eval, rank and recommend take, beside a baseline.
  void compare_with_baseline();
  // Its weights, unless they are those there already; its folder's name then, else empty.
  std::string load_best();

  // A checkpoint can only be the best one when its score is known.
  void save_if_scored(std::optional<double> score);

  void save(std::optional<double> score);

  void write_checkpoint(std::optional<double> score);

  Config config_;
  std::string command_;
  dist::Communicator& world_;
  const RunControl control_;
  const Share share_;
  const std::vector<int> nodes_;
  const RankCores cores_;
  const std::int64_t start_ns_ = Trace::now_ns();
  std::unique_ptr<Trace> trace_;
  data::Store store_;
  Context ctx_;
  std::unique_ptr<Task> task_;
  std::deque<Submitted> submitted_;
  std::int64_t total_steps_ = 0;

  RunFolder folder_;
  std::optional<LoggedBytes> logged_;  // before the step gone on from
  std::unique_ptr<JsonLines> lines_;
  std::unique_ptr<TensorBoardEvents> events_;
  std::unique_ptr<MlLog> mllog_;
  double best_auc_ = 0;                 // of those in it
  std::unique_ptr<Watchdog> watchdog_;  // of several ranks
  double watched_seconds_ = 0;          // in steps
  int named_rank_ = -1;                 // as the slowest, last
  std::int64_t named_step_ = 0;
  std::unique_ptr<dist::Communicator> writing_ranks_;
  std::unique_ptr<checkpoint::CheckpointWriter>
      writer_;  // of rank 0, and of those whose rows it writes, too
  TrainingProgress* progress_ = nullptr;
  PeakRate peak_rate_;
  Window window_;
  double counted_until_ = 0;  // the clock, when seconds were last added to the window
  train::StepResult last_;
  std::int64_t epoch_ = 0;
  std::int64_t bad_steps_ = 0;
  std::int64_t skipped_steps_ = 0;
  std::int64_t last_saved_ = -1;
  EarlyStopping early_stopping_;
  std::int64_t counted_step_ = -1;         // of the last evaluation that counts
  std::optional<data::Split> last_split_;  // whose evaluation was printed
};

}  // namespace turbogr::run
