#include "turbogr/run/training_run.h"

#include <algorithm>
#include <filesystem>

#include "turbogr/checkpoint/device_tensors.h"
#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/host_memory.h"
#include "turbogr/core/log.h"
#include "turbogr/eval/seen_items.h"
#include "turbogr/run/idle_keys.h"
#include "turbogr/run/lengths.h"
#include "turbogr/run/seen_rule.h"
#include "turbogr/run/training_run_class.h"
#include "turbogr/train/stages.h"

namespace turbogr::train {
namespace {

constexpr std::ptrdiff_t kUsersNamed = 5;

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

// What is planned is not all: threads, code that oneDNN makes at its first products, files. A
// library that finds no memory ends the process without a word.
void check_room_to_work() {
  constexpr std::size_t kRoom = std::size_t{48} << 20;
  if (detail::host_has(kRoom)) return;
  throw OutOfMemory(
      fmt::format("out of memory on cpu: of {:.1f} MiB that are free beside the plan, "
                  "{} MiB are wanted for threads, code and files",
                  static_cast<double>(available_host_memory()) / (1 << 20), kRoom >> 20));
}

double seconds_now() { return static_cast<double>(Trace::now_ns()) * 1e-9; }

}  // namespace

template <class T>
TrainingRun<T>::TrainingRun(const Config& config, const std::string& command,
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
      loader_(store_, train_loader_options(config, store_, share_)),
      early_stopping_(config.train.patience) {
  const RankOptions ranks = rank_options(config, nodes_);
  const std::string idle =
      check_idle_keys(config, {.world = share_.world,
                               .groups = ranks.topology.num_groups(),
                               .sharded = ranks.sharded() || config.dist.link == "nccl"});
  if (leads() && !idle.empty()) log::warn("{}", idle);
  for (std::int64_t part = 0; part < config.train.accumulate; ++part) batches_.emplace_back();
  plan_steps();
  const std::int64_t capacity = std::max(loader_.max_batch_tokens(), config.data.max_length);
  RetrievalOptions options = retrieval_options(config, num_signals(store_), total_steps_, capacity);
  options.ranks = ranks;
  try {
    make_trainer(options);
    if (!config.run.dry_run) check_room_to_work();
  } catch (const OutOfMemory& error) {
    detail::throw_error(error.what(), " (planned for ", capacity, " tokens a step, ",
                        config.negatives.count, " negatives, ", store_.num_items(), " items of ",
                        config.model.width, " numbers, ", config.model.layers,
                        " layers): lower train.tokens, train.batch or negatives.count, set "
                        "train.recompute = true, raise train.accumulate, or take a smaller model");
  }
  capacity_ = capacity;
}

template <class T>
void TrainingRun<T>::make_trainer(RetrievalOptions options) {
  const std::vector<std::int64_t> counts = training_counts(config_, store_);
  options.plan_only = config_.run.dry_run;
  std::optional<PlanOnly> planning;
  if (options.plan_only) planning.emplace();
  if (!options.plan_only && ctx_.device() == Device::kCuda &&
      (world_.size() > 1 || config_.dist.link != "auto")) {
    link_ = dist::choose_link(world_, config_.dist.link, device_id());
    options.ranks.link = link_.link;
  }
  trainer_ =
      std::make_unique<RetrievalTrainer<T>>(ctx_, world_, options, store_.num_items(), counts);
}

template <class T>
RunEnd TrainingRun<T>::run() {
  const data::InterruptGuard guard;
  if (prints()) print_plan();
  if (config_.run.dry_run) return RunEnd::kFinished;
  check_evaluation(config_, store_);
  if (leads()) folder_ = open_run_folder(config_);
  world_.barrier();  // the folder is there
  folder_.path = config_.run.dir;
  trainer_->initialise(ctx_);
  const std::optional<std::int64_t> resumed = config_.run.resume ? resume() : std::nullopt;
  if (!config_.run.start_from.empty() && !resumed) start_from();
  if (leads()) open_files(config_.run.resume ? std::optional(resumed.value_or(0)) : std::nullopt);
  make_writer();
  peak_rate_ = make_peak_rate<T>(ctx_, config_.train.peak_tflops);
  const RunEnd end = train();
  if (config_.run.trace) write_trace();
  return end;
}

template <class T>
Share TrainingRun<T>::share_of(const Config& config, const dist::Communicator& world) {
  if (config.dist.world == 0) return {world.rank(), world.size()};
  TGR_CHECK(config.run.dry_run, "dist.world = ", config.dist.world,
            " is for dry runs; a run has the ranks that mpirun or srun start");
  return {0, static_cast<int>(config.dist.world)};
}

template <class T>
std::vector<int> TrainingRun<T>::nodes_of(const Config& config, const dist::Communicator& world) {
  if (config.dist.world == 0) return world.nodes();
  return std::vector<int>(static_cast<std::size_t>(config.dist.world), 0);
}

template <class T>
void TrainingRun<T>::open_files(std::optional<std::int64_t> resumed) {
  folder_.check_in_place();
  write_run_config(folder_, config_);
  lines_ = std::make_unique<JsonLines>(folder_.metrics(), resumed, logged_);
  if (config_.log.tensorboard) {
    events_ = std::make_unique<TensorBoardEvents>(folder_.tensorboard(), resumed);
  }
  write_lengths(folder_.lengths(), length_histogram(window_lengths()));
}

// Groups are replicas of each other: the one of rank 0 writes.
template <class T>
void TrainingRun<T>::make_writer() {
  bool writes = true;
  if (world_.size() > 1) {
    const std::vector<int>& group_of = trainer_->options().ranks.topology.group_of;
    writes = group_of[static_cast<std::size_t>(world_.rank())] == group_of[0];
    writing_ranks_ = world_.split(writes ? 0 : 1, world_.rank(), "checkpoints");
  }
  if (!writes) return;
  CheckpointWriterOptions options = {.keep_last = config_.checkpoint.keep_last,
                                     .keep_best = config_.checkpoint.keep_best,
                                     .background = config_.checkpoint.background,
                                     .device = ctx_.device() == Device::kCuda ? &ctx_ : nullptr,
                                     .ranks = writing_ranks_.get()};
  if (leads()) options.check_folder = [this] { folder_.check_in_place(); };
  writer_ = std::make_unique<CheckpointWriter>(folder_.checkpoints(), options);
}

template <class T>
Trace* TrainingRun<T>::trace_of(const Config& config) {
  if (config.run.trace) trace_ = std::make_unique<Trace>(1 << 16, world_.rank());
  return trace_.get();
}

template <class T>
RunEnd TrainingRun<T>::train() {
  const bool shows = leads() && control_.progress;
  TrainingProgress progress(stderr,
                            shows ? TrainingProgress::choose(config_.log.progress, stderr)
                                  : TrainingProgress::Style::kNone,
                            total_steps_, trainer_->steps_done());
  progress_ = &progress;
  if (finished() && prints()) {
    log::info("nothing left to train: {} steps, {} epochs are done; raise {} to go on",
              trainer_->steps_done(), epoch_,
              early_stopping_.out_of_patience() ? "train.patience" : "train.epochs or train.steps");
  }
  while (!finished() && !pausing() && !interrupted()) {
    const double begin = seconds_now();
    const std::size_t parts = [&] {
      const TraceScope scope(trace_.get(), stages::kRead.name, kComputeLane);
      return next_batches();
    }();
    if (parts == 0) {
      finish_steps(0);
      end_epoch();
      continue;
    }
    trainer_->submit(ctx_, {batches_.data(), parts}, data::interrupted());
    remember(parts);
    finish_steps(trainer_->queue_length() - 1);
    window_.seconds += seconds_now() - begin;
    after_step();
  }
  finish_steps(0);
  progress_ = nullptr;
  // A run that goes on from here counts these steps into its next line, as if it had not stopped.
  if (window_.tokens > 0 && last_.step > 0) log_window(last_);
  save(std::nullopt);
  if (writer_) writer_->wait();
  if (interrupted()) {
    if (leads())
      log::info("stopped at step {} ({}); go on with --run.resume=true", trainer_->steps_done(),
                data::interrupted() ? data::interruption() : "a signal to another rank");
    return RunEnd::kInterrupted;
  }
  if (!finished()) return RunEnd::kPaused;
  save_if_scored(evaluate_all());
  if (writer_) writer_->wait();
  if (!control_.quiet) compare_with_popularity();
  if (!prints()) return RunEnd::kFinished;
  if (skipped_steps_ > 0) {
    log::warn("{} steps were skipped: their loss or gradient was not finite", skipped_steps_);
  }
  log::info("finished at step {}; look at it with `turbogr eval --checkpoint {}`",
            trainer_->steps_done(), config_.run.dir);
  return RunEnd::kFinished;
}

template <class T>
bool TrainingRun<T>::finished() const {
  return (config_.train.steps > 0 && trainer_->steps_done() >= config_.train.steps) ||
         (config_.train.epochs > 0 && epoch_ >= config_.train.epochs) ||
         early_stopping_.out_of_patience();
}

template <class T>
std::size_t TrainingRun<T>::next_batches() {
  std::size_t parts = 0;
  while (parts < batches_.size() && !epoch_ended_) {
    if (loader_.next(batches_[parts])) {
      ++parts;
    } else {
      epoch_ended_ = true;
    }
  }
  if (parts == 0) epoch_ended_ = false;
  return parts;
}

template <class T>
void TrainingRun<T>::remember(std::size_t parts) {
  Submitted step;
  for (std::size_t part = 0; part < parts; ++part) {
    const data::Batch& batch = batches_[part];
    lengths_.clear();
    for (std::size_t b = 0; b + 1 < batch.offsets.size(); ++b) {
      lengths_.push_back(batch.offsets[b + 1] - batch.offsets[b]);
    }
    const model::Flops flops = model::step_flops(trainer_->model().options(), lengths_);
    step.flops.causal += flops.causal;
    step.flops.paper += flops.paper;
  }
  const std::vector<std::int64_t>& users = batches_[0].users;
  step.users.assign(users.begin(),
                    users.begin() + std::min<std::ptrdiff_t>(std::ssize(users), kUsersNamed));
  submitted_.push_back(std::move(step));
}

template <class T>
void TrainingRun<T>::finish_steps(std::int64_t left) {
  while (trainer_->pending() > left) {
    const StepResult result = trainer_->finish(ctx_);
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
      log_window(result);
      begin_window();
    }
  }
}

template <class T>
void TrainingRun<T>::after_step() {
  const std::int64_t step = trainer_->steps_done();
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

template <class T>
void TrainingRun<T>::report_bad_step(const StepResult& result, const Submitted& step) {
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
  const auto largest = trainer_->largest_tensors(ctx_);
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

template <class T>
void TrainingRun<T>::end_epoch() {
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

template class TrainingRun<float>;
template class TrainingRun<bf16>;

RunEnd run_training(const Config& given, const std::string& command, dist::Communicator& world,
                    const RunControl& control) {
  check_same_config(given, world);
  TGR_CHECK(!given.data.store.empty(),
            "data.store is not set; name a store, e.g. --data.store=stores/ml-1m");
  Config config = given;
  // As the run remembers it: who reads the run later may stand in another folder.
  config.data.store = std::filesystem::absolute(given.data.store).string();
  const std::string seen = resolve_seen(config, data::Store(config.data.store));
  if (world.rank() == 0 && !control.quiet && !seen.empty()) log::info("{}", seen);
  if (!config.run.dry_run && world.rank() == 0) check_run_folder(config);
  if (config.train.dtype == "bf16") return TrainingRun<bf16>(config, command, world, control).run();
  return TrainingRun<float>(config, command, world, control).run();
}

}  // namespace turbogr::train
