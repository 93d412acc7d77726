#include "turbogr/run/training_run.h"

#include <algorithm>
#include <filesystem>

#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/run/idle_keys.h"
#include "turbogr/run/lengths.h"
#include "turbogr/run/ranking_setup.h"
#include "turbogr/run/seen_rule.h"
#include "turbogr/run/training_run_class.h"
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

}  // namespace

TrainingRun::TrainingRun(const Config& config, const std::string& command,
                         dist::Communicator& world, const RunControl& control)
    : config_(config),
      command_(command),
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
      early_stopping_(config.train.patience) {
  const train::RankOptions ranks = rank_options(config, nodes_);
  const std::string idle =
      check_idle_keys(config, {.world = share_.world,
                               .groups = ranks.topology.num_groups(),
                               .sharded = ranks.sharded() || config.dist.link == "nccl"});
  if (leads() && !idle.empty()) log::warn("{}", idle);
  const TaskParts parts = {config_, world_, store_, ctx_, share_, nodes_, cores_};
  task_ = config_.ranks() ? make_ranking_task(parts) : make_retrieval_task(parts);
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
  task_->initialise();
  const std::optional<std::int64_t> resumed = config_.run.resume ? resume() : std::nullopt;
  if (!config_.run.start_from.empty() && !resumed) start_from();
  if (leads()) open_files(config_.run.resume ? std::optional(resumed.value_or(0)) : std::nullopt);
  make_writer();
  if (world_.size() > 1 && task_->ranks().sharded()) {
    watchdog_ = std::make_unique<Watchdog>(world_.split(0, world_.rank(), "watchdog"));
  }
  peak_rate_ = task_->make_peak();
  const RunEnd end = train();
  if (config_.run.trace) write_trace();
  return end;
}

Share TrainingRun::share_of(const Config& config, const dist::Communicator& world) {
  if (config.dist.world == 0) return {world.rank(), world.size()};
  TGR_CHECK(config.run.dry_run, "dist.world = ", config.dist.world,
            " is for dry runs; a run has the ranks that mpirun or srun start");
  return {0, static_cast<int>(config.dist.world)};
}

std::vector<int> TrainingRun::nodes_of(const Config& config, const dist::Communicator& world) {
  if (config.dist.world == 0) return world.nodes();
  return std::vector<int>(static_cast<std::size_t>(config.dist.world), 0);
}

void TrainingRun::open_files(std::optional<std::int64_t> resumed) {
  folder_.check_in_place();
  write_run_config(folder_, config_);
  lines_ = std::make_unique<JsonLines>(folder_.metrics(), resumed, logged_);
  if (config_.log.tensorboard) {
    events_ = std::make_unique<TensorBoardEvents>(folder_.tensorboard(), resumed);
  }
  if (config_.run.mllog) {
    const bool begun = resumed.value_or(0) > 0;
    mllog_ = std::make_unique<MlLog>(folder_.mllog(), begun);
    if (!begun) {
      mllog_->begin(mllog_facts(config_, world_.size(), task_->samples(data::Split::kTrain),
                                task_->samples(held_out(config_).front())));
      mllog_->start();
    }
  }
  write_lengths(folder_.lengths(), length_histogram(task_->lengths()));
}

// Groups are replicas of each other: the one of rank 0 writes.
void TrainingRun::make_writer() {
  bool writes = true;
  if (world_.size() > 1) {
    const std::vector<int>& group_of = task_->ranks().topology.group_of;
    writes = group_of[static_cast<std::size_t>(world_.rank())] == group_of[0];
    writing_ranks_ = world_.split(writes ? 0 : 1, world_.rank(), "checkpoints");
  }
  if (!writes) return;
  checkpoint::CheckpointWriterOptions options = {
      .keep_last = config_.checkpoint.keep_last,
      .keep_best = config_.checkpoint.keep_best,
      .background = config_.checkpoint.background,
      .device = ctx_.device() == Device::kCuda ? &ctx_ : nullptr,
      .ranks = writing_ranks_.get()};
  if (leads()) options.check_folder = [this] { folder_.check_in_place(); };
  writer_ = std::make_unique<checkpoint::CheckpointWriter>(folder_.checkpoints(), options);
}

Trace* TrainingRun::trace_of(const Config& config) {
  if (config.run.trace) trace_ = std::make_unique<Trace>(1 << 16, world_.rank());
  return trace_.get();
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
              task_->steps_done(), epoch_,
              early_stopping_.out_of_patience() ? "train.patience" : "train.epochs or train.steps");
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
  if (window_.tokens > 0 && last_.step > 0) log_window(last_);
  save(std::nullopt);
  if (writer_) writer_->wait();
  if (interrupted()) {
    if (leads())
      log::info("stopped at step {} ({}); go on with --run.resume=true", task_->steps_done(),
                data::interrupted() ? data::interruption() : "a signal to another rank");
    return RunEnd::kInterrupted;
  }
  if (!finished()) return RunEnd::kPaused;
  save_if_scored(evaluate_all());
  if (writer_) writer_->wait();
  if (mllog_) mllog_->stop(samples_done(), best_auc_ >= kMlLogTarget);
  if (!control_.quiet) compare_with_baseline();
  if (!prints()) return RunEnd::kFinished;
  if (skipped_steps_ > 0) {
    log::warn("{} steps were skipped: their loss or gradient was not finite", skipped_steps_);
  }
  log::info("finished at step {}; look at it with `turbogr eval --checkpoint {}`",
            task_->steps_done(), config_.run.dir);
  return RunEnd::kFinished;
}

bool TrainingRun::finished() const {
  return (config_.train.steps > 0 && task_->steps_done() >= config_.train.steps) ||
         (config_.train.epochs > 0 && epoch_ >= config_.train.epochs) ||
         early_stopping_.out_of_patience();
}

// Before a line is logged, too: the time of its last step belongs to it.
void TrainingRun::count_seconds() {
  const double now = seconds_now();
  window_.seconds += now - counted_until_;
  watched_seconds_ += now - counted_until_;
  counted_until_ = now;
}

void TrainingRun::finish_steps(std::int64_t left) {
  while (task_->pending() > left) {
    const train::StepResult result = task_->finish();
    const Submitted step = std::move(submitted_.front());
    submitted_.pop_front();
    window_.loss_sum += result.loss * static_cast<double>(result.predicting);
    window_.predicting += result.predicting;
    window_.tokens += result.tokens;
    window_.flops.causal += step.flops.causal;
    window_.flops.paper += step.flops.paper;
    last_ = result;
    bad_steps_ = result.finite ? 0 : bad_steps_ + 1;
    if (!result.finite) report_bad_step(result, step);
    if (result.step % config_.log.every == 0) {
      count_seconds();
      log_window(result);
      begin_window();
    }
    if (watchdog_ && result.step % Watchdog::kEvery == 0) watch(result.step);
  }
}

void TrainingRun::watch(std::int64_t step) {
  const std::optional<Suspect> found =
      watchdog_->look({.seconds = watched_seconds_, .by_stage = task_->times().by_stage});
  if (!found || !leads()) return;
  // Again when it is another one, or as often as figures are logged.
  if (found->rank == named_rank_ && step - named_step_ < config_.log.every) return;
  named_rank_ = found->rank;
  named_step_ = step;
  log::info("steps to {}: {}", step - Watchdog::kEvery, found->text);
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
  ++skipped_steps_;
  if (leads())
    log::warn("step {}: loss or gradient is not finite; the step was skipped ({} so far)",
              result.step, skipped_steps_);
  if (bad_steps_ < config_.train.max_bad_steps) return;
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
  detail::throw_error("training stopped at step ", result.step, ": ", bad_steps_,
                      " steps in a row had a loss or gradient that is not finite; the last batch "
                      "began with users ",
                      users, "; largest tensors: ", tensors,
                      ". Lower optim.lr, set optim.clip, or raise train.max_bad_steps");
}

void TrainingRun::end_epoch() {
  ++epoch_;
  const EvalConfig& eval = config_.eval;
  std::optional<double> score;
  if (eval.every > 0 && epoch_ % eval.every == 0 && !finished()) {
    score = evaluate_and_count();
  }
  const std::int64_t every = config_.checkpoint.every_epochs;
  if ((every > 0 && epoch_ % every == 0) || (score && config_.checkpoint.keep_best > 0))
    save(score);
}

RunEnd run_training(const Config& given, const std::string& command, dist::Communicator& world,
                    const RunControl& control) {
  check_same_config(given, world);
  TGR_CHECK(!given.data.store.empty(),
            "data.store is not set; name a store, e.g. --data.store=stores/ml-1m");
  Config config = given;
  // As the run remembers it: who reads the run later may stand in another folder.
  config.data.store = std::filesystem::absolute(given.data.store).string();
  if (config.ranks()) {
    name_features(config, data::Store(config.data.store));
  } else {
    const std::string seen = resolve_seen(config, data::Store(config.data.store));
    if (world.rank() == 0 && !control.quiet && !seen.empty()) log::info("{}", seen);
  }
  if (!config.run.dry_run && world.rank() == 0) check_run_folder(config);
  return TrainingRun(config, command, world, control).run();
}

}  // namespace turbogr::run
