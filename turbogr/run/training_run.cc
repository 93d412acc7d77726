#include "turbogr/run/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/core/context.h"
#include "turbogr/core/escape.h"
#include "turbogr/core/log.h"
#include "turbogr/core/trace.h"
#include "turbogr/core/utf8.h"
#include "turbogr/data/interrupt.h"
#include "turbogr/data/store.h"
#include "turbogr/dist/topology.h"
#include "turbogr/run/idle_keys.h"
#include "turbogr/run/lengths.h"
#include "turbogr/run/named_features.h"
#include "turbogr/run/peak_rate.h"
#include "turbogr/run/rank_cores.h"
#include "turbogr/run/rank_traces.h"
#include "turbogr/run/run_checkpoints.h"
#include "turbogr/run/run_folder.h"
#include "turbogr/run/run_options.h"
#include "turbogr/run/run_position.h"
#include "turbogr/run/run_records.h"
#include "turbogr/run/seen_rule.h"
#include "turbogr/run/task.h"
#include "turbogr/run/timeline.h"
#include "turbogr/run/training_progress.h"
#include "turbogr/run/watchdog.h"
#include "turbogr/train/stages.h"

namespace turbogr::run {
namespace {

// Ranks that were started with other settings would train on without a word, or wait for each
// other.
void check_same_config(const Config& config, dist::Communicator& world) {
  if (world.size() == 1) return;
  std::string first = config_text(config);
  auto bytes = static_cast<std::int64_t>(first.size());
  world.broadcast(&bytes, sizeof(bytes), 0);
  first.resize(static_cast<std::size_t>(bytes));
  world.broadcast(first.data(), bytes, 0);
  const std::vector<std::string> differences =
      config_differences(parse_config(first, "rank 0's config"), config, "");
  TGR_CHECK(differences.empty(), "this rank was started with another config than rank 0 (",
            differences.empty() ? "" : differences[0],
            " there); start all ranks with the same file and the same --key=value");
}

double seconds_now() { return static_cast<double>(Trace::now_ns()) * 1e-9; }

Share share_of(const Config& config, const dist::Communicator& world) {
  if (config.dist.world == 0) return {world.rank(), world.size()};
  TGR_CHECK(config.run.dry_run, "dist.world = ", config.dist.world,
            " is for dry runs; a run has the ranks that mpirun or srun start");
  return {0, static_cast<int>(config.dist.world)};
}

// A dry run for other ranks than there are plays machines, or has all on one.
std::vector<int> nodes_of(const Config& config, const dist::Communicator& world) {
  if (config.dist.world == 0) return world.nodes();
  return std::vector<int>(static_cast<std::size_t>(config.dist.world), 0);
}

// One training run: what `turbogr train` does from the plan it prints to the last evaluation. What
// is trained is the task's (task.h).
class TrainingRun {
 public:
  TrainingRun(const Config& config, const std::string& command, dist::Communicator& world,
              const RunControl& control);

  RunEnd run();

 private:
  bool leads() const { return world_.rank() == 0; }
  bool prints() const { return leads() && !control_.quiet; }
  Trace* trace_of(const Config& config);
  std::optional<MlLogFacts> mllog() const;

  RunEnd train();
  // The smaller of steps and epochs ends a run, or patience that ran out; total_steps_, which the
  // progress and the learning rate go by, is an estimate when the run is very long.
  bool finished() const;
  bool pausing() const {
    return control_.pause_after > 0 && position_.epoch >= control_.pause_after;
  }
  // Over several ranks all must end at the same step, whoever heard the signal.
  bool interrupted() const { return world_.size() > 1 ? task_->stop_asked() : data::interrupted(); }

  // Reads results until no more than `left` steps are on their way.
  void finish_steps(std::int64_t left);
  void count_seconds();
  void report_bad_step(const train::StepResult& result, const Submitted& step);
  // Says now and then which rank the others wait for.
  void watch(std::int64_t step);
  // What waits for the device happens only where it must.
  void after_step();
  void end_epoch();

  void log_window(const train::StepResult& result);
  void write(const MetricRecord& record);
  double epochs_done() const;
  std::int64_t samples_done() const { return task_->steps_done() * config_.train.batch; }

  // Evaluates the held-out splits; returns the validation score that picks the best checkpoint.
  // Where there is a validation split the test split waits for the end, so that nobody chooses by
  // it.
  std::optional<double> evaluate_all();
  void say_no_score();  // once
  // An evaluation during training: its score, counted against train.patience.
  std::optional<double> evaluate_and_count();
  // The end of a run: the best checkpoint, which eval, rank and recommend take, beside a baseline.
  void compare_with_baseline();

  void save(std::optional<double> score);
  // A checkpoint can only be the best one when its score is known.
  void save_if_scored(std::optional<double> score);

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
  std::optional<RunRecords> records_;  // of rank 0
  std::optional<RunCheckpoints> checkpoints_;
  std::unique_ptr<Watchdog> watchdog_;  // of several ranks
  double watched_seconds_ = 0;          // in steps
  TrainingProgress* progress_ = nullptr;
  PeakRate peak_rate_;
  RunPosition position_;
  double counted_until_ = 0;  // the clock, when seconds were last added to the window
  train::StepResult last_;
  std::int64_t counted_step_ = -1;  // of the last evaluation that counts
  bool said_no_score_ = false;
  std::optional<data::Split> last_split_;  // whose evaluation was printed
};

TrainingRun::TrainingRun(const Config& config, const std::string& command,
                         dist::Communicator& world, const RunControl& control)
    : config_(config),
      command_(escaped(command, "\\")),
      world_(world),
      control_(control),
      share_(share_of(config, world)),
      nodes_(nodes_of(config, world)),
      cores_(rank_cores(world)),
      store_(config.data.store),
      ctx_({.device = (check_run(config, store_), device_for_rank(config, world)),
            .threads = threads_for_rank(config.train.threads, cores_),
            .deterministic = config.train.deterministic,
            .trace = trace_of(config)}),
      position_(config.train.patience) {
  RunLayout layout = layout_of(config, rank_options(config, nodes_));
  const std::vector<int> played =
      dist::play_nodes(nodes_, static_cast<int>(config.dist.ranks_per_node));
  layout.machines = static_cast<int>(std::set<int>(played.begin(), played.end()).size());
  const std::string idle = check_idle_keys(config, layout);
  if (leads() && !idle.empty()) log::warn("{}", idle);
  const TaskParts parts = {config_, world_, store_, ctx_, share_, nodes_, cores_};
  task_ = config_.ranks() ? make_ranking_task(parts) : make_retrieval_task(parts);
  checkpoints_.emplace(ctx_, world_, config_, store_, folder_, *task_);
  total_steps_ = task_->steps().limited_to(config_.train.steps);
}

RunEnd TrainingRun::run() {
  const data::InterruptGuard guard;
  if (prints()) task_->print_plan();
  if (config_.run.dry_run) return RunEnd::kFinished;
  task_->check_evaluation();
  if (leads()) folder_ = open_run_folder(config_);
  world_.barrier();  // the folder is there
  folder_.path = config_.run.dir;
  std::optional<std::int64_t> resumed;
  std::optional<LoggedBytes> logged;
  const bool start_over = std::exchange(config_.run.start_over, false);  // this once
  if (config_.run.resume) resumed = checkpoints_->resume(start_over, position_, logged);
  if (!resumed) task_->initialise();  // all of it is read otherwise
  if (!config_.run.start_from.empty() && !resumed) checkpoints_->start_from();
  if (config_.run.resume && !resumed) resumed = 0;
  if (leads()) {
    records_.emplace(folder_, config_,
                     RunRecordsOptions{.resumed = resumed,
                                       .logged = logged,
                                       .mllog = mllog(),
                                       .on_record = control_.on_record});
    write_lengths(folder_.lengths(), length_histogram(task_->lengths()));
  }
  checkpoints_->open_writer();
  if (world_.size() > 1 && task_->ranks().sharded()) {
    watchdog_ = std::make_unique<Watchdog>(world_.split(0, world_.rank(), "watchdog"));
  }
  peak_rate_ = task_->make_peak();
  const RunEnd end = train();
  if (config_.run.trace) {
    if (leads()) folder_.check_in_place();
    write_traces(world_, *trace_, start_ns_, folder_.trace());
  }
  return end;
}

Trace* TrainingRun::trace_of(const Config& config) {
  if (config.run.trace) trace_ = std::make_unique<Trace>(1 << 16, world_.rank());
  return trace_.get();
}

std::optional<MlLogFacts> TrainingRun::mllog() const {
  if (!config_.run.mllog) return std::nullopt;
  return mllog_facts(config_, world_.size(), task_->samples(data::Split::kTrain),
                     task_->samples(held_out(config_).front()));
}

RunEnd TrainingRun::train() {
  const bool shows = leads() && control_.progress;
  TrainingProgress progress(stderr,
                            shows ? TrainingProgress::choose(config_.log.progress, stderr)
                                  : TrainingProgress::Style::kNone,
                            total_steps_, task_->steps_done());
  progress_ = &progress;
  if (finished() && prints()) {
    log::info("nothing left to train: {} steps, {} epochs are done; raise {} to go on",
              task_->steps_done(), position_.epoch,
              position_.early_stopping.out_of_patience() ? "train.patience"
                                                         : "train.epochs or train.steps");
  }
  while (!finished() && !pausing() && !interrupted()) {
    counted_until_ = seconds_now();
    const bool read = [&] {
      const TraceScope scope(trace_.get(), train::stages::kRead.name, train::kComputeLane);
      return task_->read();
    }();
    if (!read) {
      finish_steps(0);
      end_epoch();
      continue;
    }
    submitted_.push_back(task_->submit(data::interrupted()));
    finish_steps(task_->queue_length() - 1);
    count_seconds();
    after_step();
  }
  counted_until_ = seconds_now();
  finish_steps(0);
  progress_ = nullptr;
  // A run that goes on from here counts these steps into its next line, as if it had not stopped.
  if (position_.window.tokens > 0 && last_.step > 0) log_window(last_);
  save(std::nullopt);
  checkpoints_->wait();
  if (interrupted()) {
    if (leads())
      log::info("stopped at step {} ({}); go on with --run.resume=true", task_->steps_done(),
                data::interrupted() ? data::interruption() : "a signal to another rank");
    return RunEnd::kInterrupted;
  }
  if (!finished()) return RunEnd::kPaused;
  save_if_scored(evaluate_all());
  checkpoints_->wait();
  if (records_) records_->ended(samples_done());
  if (!control_.quiet) compare_with_baseline();
  if (!prints()) return RunEnd::kFinished;
  if (position_.skipped_steps > 0) {
    log::warn("{} steps were skipped: their loss or gradient was not finite",
              position_.skipped_steps);
  }
  log::info("finished at step {}; look at it with `turbogr eval --checkpoint {}`",
            task_->steps_done(), config_.run.dir);
  return RunEnd::kFinished;
}

bool TrainingRun::finished() const {
  return (config_.train.steps > 0 && task_->steps_done() >= config_.train.steps) ||
         (config_.train.epochs > 0 && position_.epoch >= config_.train.epochs) ||
         position_.early_stopping.out_of_patience();
}

// Before a line is logged, too: the time of its last step belongs to it.
void TrainingRun::count_seconds() {
  const double now = seconds_now();
  position_.window.seconds += now - counted_until_;
  watched_seconds_ += now - counted_until_;
  counted_until_ = now;
}

void TrainingRun::finish_steps(std::int64_t left) {
  while (task_->pending() > left) {
    const train::StepResult result = task_->finish();
    const Submitted step = std::move(submitted_.front());
    submitted_.pop_front();
    position_.window.add(result, step.flops);
    last_ = result;
    position_.bad_steps = result.finite ? 0 : position_.bad_steps + 1;
    if (!result.finite) report_bad_step(result, step);
    if (result.step % config_.log.every == 0) {
      count_seconds();
      log_window(result);
      position_.window = StepWindow(task_->times());
    }
    if (watchdog_ && result.step % Watchdog::kEvery == 0) watch(result.step);
  }
}

void TrainingRun::watch(std::int64_t step) {
  const std::optional<Suspect> found =
      watchdog_->look({.seconds = watched_seconds_, .by_stage = task_->times().by_stage});
  if (!found || !leads()) return;
  if (watchdog_->is_news(*found, step, config_.log.every)) {
    log::info("steps to {}: {}", step - Watchdog::kEvery, found->text);
  }
}

void TrainingRun::after_step() {
  const std::int64_t step = task_->steps_done();
  const CheckpointConfig& checkpoint = config_.checkpoint;
  const bool save_now = checkpoint.every > 0 && step % checkpoint.every == 0;
  const bool evaluate_now =
      config_.eval.every_steps > 0 && step % config_.eval.every_steps == 0 && !finished();
  if (save_now || evaluate_now) finish_steps(0);
  // The checkpoint of a step counts the evaluation of that step.
  std::optional<double> score;
  if (evaluate_now) score = evaluate_and_count();
  if (save_now) save(score);
  if (!save_now) save_if_scored(score);
}

void TrainingRun::report_bad_step(const train::StepResult& result, const Submitted& step) {
  ++position_.skipped_steps;
  if (leads())
    log::warn("step {}: loss or gradient is not finite; the step was skipped ({} so far)",
              result.step, position_.skipped_steps);
  if (position_.bad_steps < config_.train.max_bad_steps) return;
  std::string users;
  for (const std::int64_t user : step.users) {
    users += (users.empty() ? "" : ", ") + store_.user_ids().text(user);
  }
  std::string tensors;
  const auto largest = task_->largest();
  for (std::size_t i = 0; i < std::min<std::size_t>(largest.size(), 3); ++i) {
    tensors +=
        fmt::format("{}{} ({:.3g})", i == 0 ? "" : ", ", largest[i].name, largest[i].largest);
  }
  detail::throw_error("training stopped at step ", result.step, ": ", position_.bad_steps,
                      " steps in a row had a loss or gradient that is not finite; the last batch "
                      "began with users ",
                      users, "; largest tensors: ", tensors,
                      ". Lower optim.lr, set optim.clip, or raise train.max_bad_steps");
}

void TrainingRun::end_epoch() {
  ++position_.epoch;
  const EvalConfig& eval = config_.eval;
  std::optional<double> score;
  if (eval.every > 0 && position_.epoch % eval.every == 0 && !finished()) {
    score = evaluate_and_count();
  }
  const std::int64_t every = config_.checkpoint.every_epochs;
  if ((every > 0 && position_.epoch % every == 0) || (score && config_.checkpoint.keep_best > 0))
    save(score);
}

double TrainingRun::epochs_done() const {
  const data::LoaderState state = task_->position();
  return static_cast<double>(state.epoch) +
         static_cast<double>(state.window) /
             static_cast<double>(std::max<std::int64_t>(state.windows, 1));
}

void TrainingRun::log_window(const train::StepResult& result) {
  const StepWindow& window = position_.window;
  const double seconds = std::max(window.seconds, 1e-9);
  const double was = peak_rate_.tflops();
  if (leads() && peak_rate_.reached(window.flops.causal / seconds * 1e-12)) {
    log::warn(
        "steps do more than the {:.3g} TFLOP/s that were measured as the peak of MFU: the machine "
        "was busy then; the peak is {:.3g} from here on (train.peak_tflops sets one)",
        was, peak_rate_.tflops());
  }
  const double peak = peak_rate_.tflops() * 1e12 * seconds;
  MetricRecord record;
  record.step = result.step;
  record.epoch = epochs_done();
  const double loss = window.loss();
  const double rate = static_cast<double>(window.tokens) / seconds;
  record.values = {{"loss", loss},
                   {"lr", result.rate},
                   {"grad_norm", result.gradient_norm},
                   {"tokens_per_s", rate},
                   {"mfu_causal", window.flops.causal / peak},
                   {"mfu_paper", window.flops.paper / peak},
                   {"peak_tflops", peak_rate_.tflops()},
                   {"skipped_steps", static_cast<double>(position_.skipped_steps)}};
  if (task_->ranks().sharded()) {
    const train::StageTimes times = task_->times() - window.began;
    record.values.emplace_back("compute_share", times.compute / seconds);
    record.values.emplace_back("exposed_sparse", times.sparse_communication / seconds);
    record.values.emplace_back("exposed_dense", times.dense_communication / seconds);
  }
  write(record);
  if (progress_ != nullptr) {
    progress_->update({.step = record.step,
                       .epoch = record.epoch,
                       .loss = loss,
                       .grad_norm = result.gradient_norm,
                       .lr = result.rate,
                       .tokens_per_s = rate,
                       .mfu_causal = window.flops.causal / peak});
  }
}

void TrainingRun::write(const MetricRecord& record) {
  if (records_) records_->write(record);
}

std::optional<double> TrainingRun::evaluate_all() {
  const TraceScope scope(trace_.get(), train::stages::kEvaluate.name, train::kComputeLane);
  if (progress_ != nullptr) progress_->pause();
  std::optional<double> score;
  const std::vector<data::Split> splits = held_out(config_);
  for (const data::Split split : splits) {
    if (split == data::Split::kTest && splits.size() > 1 && !finished()) continue;
    // Patience ran out with this step's figure, which is known.
    if (split == data::Split::kValidation && counted_step_ == task_->steps_done()) continue;
    const Evaluation found = task_->evaluate(split);
    MetricRecord record;
    record.step = task_->steps_done();
    record.epoch = epochs_done();
    record.split = std::string(name_of(split));
    record.values = found.figures;
    if (split == data::Split::kValidation) {
      score = score_of(found, config_.eval.metric);
      if (!score) say_no_score();
    }
    record.values.insert(record.values.end(), found.counts.begin(), found.counts.end());
    record.calibration = found.calibration;
    write(record);
    if (records_ && split == splits.front()) {
      records_->evaluated(samples_done(), score_of(found, "auc").value_or(0));
    }
    if (!prints()) continue;
    if (progress_ != nullptr) progress_->clear();
    // The targets of a split are the same every time: said once.
    const std::string remark = std::exchange(last_split_, split) == split ? "" : found.remark;
    print_result("{} after {:.2f} epochs, {}:{}\n{}", record.split, record.epoch, found.of,
                 figures_text(found.figures), remark);
  }
  if (progress_ != nullptr) progress_->resume();
  return score;
}

std::optional<double> TrainingRun::evaluate_and_count() {
  const std::optional<double> score = evaluate_all();
  if (!score) return score;
  counted_step_ = task_->steps_done();
  position_.early_stopping.add(*score);
  if (prints() && position_.early_stopping.out_of_patience()) {
    log::info("stopping early: {} evaluations in a row were no better than {} {:.4f}",
              position_.early_stopping.since_best(), config_.eval.metric,
              std::abs(*position_.early_stopping.best()));
  }
  return score;
}

void TrainingRun::say_no_score() {
  if (!leads() || std::exchange(said_no_score_, true)) return;
  if (config_.train.patience == 0 && config_.checkpoint.keep_best == 0) return;
  log::warn(
      "eval.metric = \"{}\" has no value on the validation split, so nothing stops this run early "
      "(train.patience) and no checkpoint is the best one (checkpoint.keep_best); name a figure "
      "that is printed",
      config_.eval.metric);
}

void TrainingRun::compare_with_baseline() {
  world_.barrier();  // the last checkpoint is written
  const data::Split split = held_out(config_).back();
  const std::string best = checkpoints_->load_best();
  if (!best.empty()) {
    const Evaluation found = task_->evaluate(split);
    if (prints()) {
      print_result("{} of the best checkpoint, {}:{}\n", name_of(split), best,
                   figures_text(found.figures));
    }
  }
  const Task::Baseline baseline = task_->compare(split);
  if (!prints()) return;
  print_result("{}", baseline.lines);
  if (!baseline.warning.empty()) log::warn("{}", baseline.warning);
}

void TrainingRun::save(std::optional<double> score) {
  const TraceScope scope(trace_.get(), train::stages::kSave.name, train::kComputeLane);
  std::optional<LoggedBytes> logged;
  if (records_) logged = records_->logged();
  checkpoints_->save(position_, logged, command_, score);
}

void TrainingRun::save_if_scored(std::optional<double> score) {
  if (score && config_.checkpoint.keep_best > 0) save(score);
}

}  // namespace

RunEnd run_training(const Config& given, const std::string& command, dist::Communicator& world,
                    const RunControl& control) {
  check_same_config(given, world);
  TGR_CHECK(!given.data.store.empty(),
            "data.store is not set; name a store, e.g. --data.store=stores/ml-1m");
  Config config = given;
  // As the run remembers it: who reads the run later may stand in another folder.
  config.data.store = std::filesystem::absolute(given.data.store).string();
  TGR_CHECK(is_utf8(config.data.store), "the store's path '", config.data.store,
            "' is not UTF-8 text, and a run could not read its config again; give files and "
            "folders names in UTF-8");
  {
    const data::Store store(config.data.store);
    name_features(config, store);
    const std::string seen = config.ranks() ? "" : resolve_seen(config, store);
    if (world.rank() == 0 && !control.quiet && !seen.empty()) log::info("{}", seen);
  }
  if (!config.run.dry_run && world.rank() == 0) check_run_folder(config);
  return TrainingRun(config, command, world, control).run();
}

}  // namespace turbogr::run
