#include "turbogr/train/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/log.h"
#include "turbogr/data/interrupt.h"
#include "turbogr/data/store.h"
#include "turbogr/dist/device_communicator.h"
#include "turbogr/model/flops.h"
#include "turbogr/train/checkpoint.h"
#include "turbogr/train/checkpoint_writer.h"
#include "turbogr/train/device_tensors.h"
#include "turbogr/train/evaluate.h"
#include "turbogr/train/item_names.h"
#include "turbogr/train/lengths.h"
#include "turbogr/train/metrics.h"
#include "turbogr/train/progress.h"
#include "turbogr/train/rank_pipeline.h"
#include "turbogr/train/roof.h"
#include "turbogr/train/run_folder.h"
#include "turbogr/train/run_options.h"
#include "turbogr/train/stages.h"
#include "turbogr/train/step_count.h"
#include "turbogr/train/timeline.h"
#include "turbogr/train/trained_model.h"

namespace turbogr::train {
namespace {

using data::Batch;
using data::Split;

constexpr std::ptrdiff_t kUsersNamed = 5;

double seconds_now() { return static_cast<double>(Trace::now_ns()) * 1e-9; }

// What the host remembers of a step until its result is read.
struct Submitted {
  model::Flops flops;
  std::vector<std::int64_t> users;  // the first few
};

// What has been done since the last line of figures.
struct Window {
  double loss_sum = 0;  // over tokens that predict
  std::int64_t predicting = 0;
  std::int64_t tokens = 0;
  double seconds = 0;
  model::Flops flops;
};

template <class T>
class TrainingRun {
 public:
  TrainingRun(const Config& config, const std::string& command, dist::Communicator& world)
      : config_(config),
        command_(command),
        world_(world),
        share_(share_of(config, world)),
        nodes_(nodes_of(config, world)),
        store_(config.data.store),
        ctx_({.device = (check_run(config, store_), device_for(config, world)),
              .threads = threads_of(config, world),
              .deterministic = config.train.deterministic,
              .trace = trace_of(config)}),
        loader_(store_, train_loader_options(config, store_, share_)) {
    for (std::int64_t part = 0; part < config.train.accumulate; ++part) batches_.emplace_back();
    plan_steps();
    const std::int64_t capacity = std::max(loader_.max_batch_tokens(), config.data.max_length);
    RetrievalOptions options =
        retrieval_options(config, num_signals(store_), total_steps_, capacity);
    options.holds_table = !wants_pipeline(config, share_.world);
    try {
      trainer_ = std::make_unique<RetrievalTrainer<T>>(ctx_, options, store_.num_items(),
                                                       training_counts(config, store_));
    } catch (const OutOfMemory& error) {
      detail::throw_error(error.what(), " (planned for ", capacity, " tokens a step, ",
                          config.negatives.count, " negatives, ", store_.num_items(), " items of ",
                          config.model.width,
                          " numbers): lower train.tokens or train.batch, set "
                          "train.recompute = true, or raise train.accumulate");
    }
    if (!options.holds_table && !config.run.dry_run) {
      PipelineOptions pipeline = pipeline_options(config, nodes_);
      if (ctx_.device() == Device::kCuda) {
        link_ = dist::choose_link(world_, config.dist.link, device_id());
        pipeline.link = link_.link;
      }
      pipeline_ = std::make_unique<RankPipeline<T>>(ctx_, world_, *trainer_, pipeline);
    }
    capacity_ = capacity;
  }

  void run() {
    if (leads()) print_plan();
    if (config_.run.dry_run) return;
    check_evaluation(config_, store_);
    if (leads()) folder_ = open_run_folder(config_);
    world_.barrier();  // the folder is there
    folder_.path = config_.run.dir;
    const data::InterruptGuard guard;
    std::optional<std::int64_t> resumed;
    if (pipeline_) {
      pipeline_->initialise(ctx_);
    } else {
      trainer_->initialise(ctx_);
    }
    if (config_.run.resume) resumed = resume();
    if (!config_.run.start_from.empty() && !resumed) start_from();
    if (leads()) open_files(resumed);
    peak_tflops_ = config_.train.peak_tflops > 0 ? config_.train.peak_tflops : peak_tflops<T>(ctx_);
    train();
    if (config_.run.trace) write_trace();
  }

 private:
  static Share share_of(const Config& config, const dist::Communicator& world) {
    if (config.dist.world == 0) return {world.rank(), world.size()};
    TGR_CHECK(config.run.dry_run, "dist.world = ", config.dist.world,
              " is for dry runs; a run has the ranks that mpirun or srun start");
    return {0, static_cast<int>(config.dist.world)};
  }

  // A dry run for other ranks than there are plays machines, or has all on one.
  static std::vector<int> nodes_of(const Config& config, const dist::Communicator& world) {
    if (config.dist.world == 0) return world.nodes();
    return std::vector<int>(static_cast<std::size_t>(config.dist.world), 0);
  }

  // Ranks of a machine take its GPUs in turn.
  static Device device_for(const Config& config, const dist::Communicator& world) {
    const Device device = device_of(config);
    if (device == Device::kCuda && num_gpus() > 0) {
      use_gpu(dist::gpu_of_rank(world, num_gpus()));
    }
    return device;
  }

  static int threads_of(const Config& config, const dist::Communicator& world) {
    if (config.train.threads > 0) return static_cast<int>(config.train.threads);
    const std::vector<int>& nodes = world.nodes();
    const auto here =
        std::count(nodes.begin(), nodes.end(), nodes[static_cast<std::size_t>(world.rank())]);
    return std::max(1,
                    static_cast<int>(std::thread::hardware_concurrency()) / static_cast<int>(here));
  }

  bool leads() const { return world_.rank() == 0; }

  void open_files(std::optional<std::int64_t> resumed) {
    write_run_config(folder_, config_);
    lines_ = std::make_unique<JsonLines>(folder_.metrics(), resumed);
    if (config_.log.tensorboard) {
      events_ = std::make_unique<TensorBoardEvents>(folder_.tensorboard(), resumed);
    }
    writer_ = std::make_unique<CheckpointWriter>(
        folder_.checkpoints(), CheckpointWriterOptions{.keep_last = config_.checkpoint.keep_last,
                                                       .keep_best = config_.checkpoint.keep_best,
                                                       .background = config_.checkpoint.background,
                                                       .copy = copy_of(ctx_)});
    write_lengths(folder_.lengths(), length_histogram(window_lengths()));
  }

  Trace* trace_of(const Config& config) {
    if (config.run.trace) trace_ = std::make_unique<Trace>(1 << 16, world_.rank());
    return trace_.get();
  }

  // One file for all ranks. Clocks of machines differ: they are set by the end of a barrier.
  void write_trace() {
    world_.barrier();
    const std::int64_t now = Trace::now_ns();
    const std::vector<std::int64_t> clocks = world_.all_gather_value(now);
    const std::vector<std::int64_t> starts = world_.all_gather_value(start_ns_);
    const std::string own = trace_->events(clocks[0] - now - starts[0]);
    const std::vector<std::int64_t> sizes =
        world_.all_gather_value(static_cast<std::int64_t>(own.size()));
    std::vector<std::int64_t> out(sizes.size(), 0), in(sizes.size(), 0);
    out[0] = static_cast<std::int64_t>(own.size());
    std::string all;
    if (leads()) {
      in = sizes;
      all.resize(
          static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0})));
    }
    world_.all_to_all({own.data(), out}, {all.data(), in});
    if (!leads()) return;
    std::vector<std::string> events;
    std::size_t at = 0;
    for (const std::int64_t size : sizes) {
      events.push_back(all.substr(at, static_cast<std::size_t>(size)));
      at += static_cast<std::size_t>(size);
    }
    Trace::write_all(folder_.trace(), events);
  }

  // The lengths of an epoch's sequences.
  std::vector<std::int64_t> window_lengths() const {
    std::vector<std::int64_t> lengths;
    for (const data::Window& window :
         data::make_windows(store_, train_loader_options(config_, store_).windows)) {
      lengths.push_back(window.length);
    }
    return lengths;
  }

  void plan_steps() {
    data::LoaderOptions options = train_loader_options(config_, store_, share_);
    options.plan.reallocate = nullptr;  // moves windows between ranks, not between steps
    const StepCount count = count_steps(data::make_windows(store_, options.windows), options.plan,
                                        config_.train.accumulate, config_.train.epochs);
    const std::int64_t by_steps = config_.train.steps;
    steps_per_epoch_ = count.an_epoch;
    total_steps_ = by_steps == 0 || count.in_all == 0 ? std::max(by_steps, count.in_all)
                                                      : std::min(by_steps, count.in_all);
  }

  void print_plan() const {
    const auto& parameters = trainer_->model().parameters();
    if (config_.optim.warmup >= total_steps_ && config_.optim.warmup > 0) {
      log::warn(
          "optim.warmup = {} and the run has {} steps: the learning rate never gets up to "
          "optim.lr; lower optim.warmup or train for longer",
          config_.optim.warmup, total_steps_);
    }
    fmt::print("data     {}: {} users, {} items, {} events\n", config_.data.store,
               grouped_text(store_.num_users()), grouped_text(store_.num_items()),
               grouped_text(store_.num_events()));
    fmt::print("train    {} sequences, {} tokens an epoch; {} steps an epoch, {} in all\n",
               grouped_text(loader_.num_windows()), grouped_text(loader_.num_tokens()),
               grouped_text(steps_per_epoch_), grouped_text(total_steps_));
    fmt::print(
        "model    {} {} layers x {} wide, {} heads, bias {}; {} dense weights, {} in the item "
        "table\n",
        config_.model.kind, config_.model.layers, config_.model.width, config_.model.heads,
        config_.model.bias, grouped_text(parameters.count()),
        grouped_text(store_.num_items() * config_.model.width));
    if (trainer_->options().holds_table) {
      fmt::print(
          "memory   {:.1f} MiB planned: {:.1f} activations, {:.1f} workspace, {:.1f} item table "
          "and its state\n",
          mib(trainer_->planned_bytes(ctx_)), mib(trainer_->model().activation_bytes()),
          mib(ctx_.workspace().capacity()), mib(trainer_->table().bytes()));
    } else {
      print_ranks();
    }
    if (ctx_.device() == Device::kCuda) {
      const DeviceMemory memory = device_memory();
      fmt::print("compute  cuda {}; {:.1f} of {:.1f} MiB of the GPU free after planning\n",
                 config_.train.dtype, mib(memory.free), mib(memory.total));
    } else {
      fmt::print("compute  {} {}, {} threads, {} kernels\n", config_.train.device,
                 config_.train.dtype, ctx_.threads(), name_of(ctx_.simd()));
    }
    std::fflush(stdout);
  }

  void print_ranks() const {
    const PipelineOptions options = pipeline_options(config_, nodes_);
    const PipelineMemory memory = pipeline_memory<T>(
        trainer_->options(), store_.num_items(), trainer_->model().parameters().count(), options);
    fmt::print("ranks    {} in {} groups of {}, replicas {}, rows {}; schedule {}, {}\n",
               share_.world, options.topology.num_groups(), options.topology.group_size,
               config_.dist.replicas, config_.dist.placement, config_.train.schedule,
               config_.dist.balance ? "balanced by cost" : "not balanced");
    if (pipeline_ && ctx_.device() == Device::kCuda) {
      fmt::print("link     between GPUs {} ({})\n",
                 link_.link == dist::DeviceLink::kNccl ? "by NCCL" : "staged through host memory",
                 link_.reason);
    }
    fmt::print(
        "memory   {:.1f} MiB a rank planned: {:.1f} activations, {:.1f} workspace, {:.1f} item "
        "rows and their state, {:.1f} rows on their way, {:.1f} dense gradients on theirs\n",
        mib(trainer_->planned_bytes(ctx_) + memory.table + memory.slots + memory.buckets),
        mib(trainer_->model().activation_bytes()), mib(ctx_.workspace().capacity()),
        mib(memory.table), mib(memory.slots), mib(memory.buckets));
  }

  static double mib(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

  std::int64_t resume() {
    // Killed before its first checkpoint: nothing is lost by beginning again.
    if (list_checkpoints(folder_.checkpoints()).empty() &&
        std::filesystem::exists(folder_.config())) {
      log::info("'{}' has no checkpoint yet; starting from the beginning", folder_.path);
      return 0;
    }
    const Checkpoint saved =
        open_newest_checkpoint(folder_.checkpoints(), config_.checkpoint.fall_back);
    const Config was = parse_config(saved.config(), saved.folder() + "/config.toml");
    for (const char* section : {"model.", "data.holdout", "data.max_length", "data.history",
                                "data.shuffle", "train.dtype", "run.seed"}) {
      const std::vector<std::string> differences = config_differences(was, config_, section);
      TGR_CHECK(differences.empty(), "cannot go on from checkpoint '", saved.folder(),
                "': ", differences.front(), "; a resumed run keeps its model and data");
    }
    check_item_names(saved, store_);
    make_whole_table();
    read_tensors(ctx_, saved, trainer_->model_tensors(), {"model"});
    read_tensors(ctx_, saved, trainer_->optimiser_tensors(), {"optimiser"});
    share_whole_table();
    trainer_->set_steps_done(saved.step());
    trainer_->refresh(ctx_);
    loader_.restore(data::LoaderState::from_json(saved.state().at("loader").get<std::string>()));
    epoch_ = saved.state().at("epoch").get<std::int64_t>();
    last_saved_ = saved.step();  // saving it again without its score would lose that
    if (leads()) log::info("resumed from {} at step {}", saved.folder(), saved.step());
    return saved.step();
  }

  // Checkpoints hold the whole table: it is read as one and cut up.
  void make_whole_table() {
    if (!pipeline_) return;
    trainer_->table() = embedding::ItemTable(store_.num_items(), config_.model.width,
                                             trainer_->options().table_optimiser);
  }
  void share_whole_table() {
    if (!pipeline_) return;
    pipeline_->take_whole();
    pipeline_->dismiss();
  }

  void start_from() {
    const Checkpoint saved = open_checkpoint(config_.run.start_from);
    const Config was = parse_config(saved.config(), saved.folder() + "/config.toml");
    const std::vector<std::string> differences = config_differences(was, config_, "model.");
    TGR_CHECK(differences.empty(), "cannot start from checkpoint '", saved.folder(),
              "': ", differences.front(), "; use its model");
    std::vector<NamedTensor> dense = trainer_->model_tensors();
    dense.erase(dense.begin());  // the item table is matched by item below
    read_tensors(ctx_, saved, dense);
    if (pipeline_) {
      make_whole_table();
      trainer_->table().initialise(ctx_.host(), trainer_->options().seed,
                                   trainer_->options().table_scale);
    }
    const std::int64_t known =
        read_known_rows(ctx_, saved, store_, trainer_->table().weight_tensor());
    share_whole_table();
    trainer_->refresh(ctx_);
    if (leads())
      log::info("started from {}: {} of {} items known, the others new", saved.folder(), known,
                store_.num_items());
  }

  void train() {
    Progress progress(
        stderr, leads() ? Progress::choose(config_.log.progress, stderr) : Progress::Style::kNone,
        total_steps_, trainer_->steps_done());
    progress_ = &progress;
    while (!finished() && !stopping()) {
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
      if (pipeline_) {
        pipeline_->submit(ctx_, {batches_.data(), parts}, data::interrupted());
      } else {
        const TraceScope scope(trace_.get(), stages::kStep.name, kComputeLane);
        trainer_->submit(ctx_, {batches_.data(), parts});
      }
      remember(parts);
      finish_steps((pipeline_ ? pipeline_->queue_length() : trainer_->queue_length()) - 1);
      window_.seconds += seconds_now() - begin;
      after_step();
    }
    finish_steps(0);
    progress_ = nullptr;
    if (window_.tokens > 0) log_window(last_);
    save(std::nullopt);
    if (writer_) writer_->wait();
    if (stopping()) {
      if (leads())
        log::info("stopped at step {}; go on with --run.resume=true", trainer_->steps_done());
      return;
    }
    save_if_scored(evaluate_all());
    if (writer_) writer_->wait();
    if (!leads()) return;
    if (skipped_steps_ > 0) {
      log::warn("{} steps were skipped: their loss or gradient was not finite", skipped_steps_);
    }
    log::info("finished at step {}; look at it with `turbogr eval --checkpoint {}`",
              trainer_->steps_done(), config_.run.dir);
  }

  // Over several ranks all must end at the same step, whoever heard the signal.
  bool stopping() const { return pipeline_ ? pipeline_->stop_asked() : data::interrupted(); }

  // The smaller of steps and epochs ends a run; total_steps_, which the progress and the learning
  // rate go by, is an estimate when the run is very long.
  bool finished() const {
    return (config_.train.steps > 0 && trainer_->steps_done() >= config_.train.steps) ||
           (config_.train.epochs > 0 && epoch_ >= config_.train.epochs);
  }

  // Fills up to `accumulate` batches; none at the end of an epoch.
  std::size_t next_batches() {
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

  void remember(std::size_t parts) {
    Submitted step;
    for (std::size_t part = 0; part < parts; ++part) {
      const Batch& batch = batches_[part];
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

  // Reads results until no more than `left` steps are on their way.
  void finish_steps(std::int64_t left) {
    while ((pipeline_ ? pipeline_->pending() : trainer_->pending()) > left) {
      const StepResult result = pipeline_ ? pipeline_->finish(ctx_) : trainer_->finish();
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
      if (result.step % config_.log.every == 0) log_window(result);
    }
  }

  // What waits for the device happens only where it must.
  void after_step() {
    const std::int64_t step = trainer_->steps_done();
    const CheckpointConfig& checkpoint = config_.checkpoint;
    const bool save_now = checkpoint.every > 0 && step % checkpoint.every == 0;
    const bool evaluate_now =
        config_.eval.every_steps > 0 && step % config_.eval.every_steps == 0 && !finished();
    if (save_now || evaluate_now) finish_steps(0);
    if (save_now) save(std::nullopt);
    if (evaluate_now) save_if_scored(evaluate_all());
  }

  void report_bad_step(const StepResult& result, const Submitted& step) {
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

  double epochs_done() const {
    const data::LoaderState state = loader_.state();
    return static_cast<double>(state.epoch) +
           static_cast<double>(state.window) /
               static_cast<double>(std::max<std::int64_t>(state.windows, 1));
  }

  void log_window(const StepResult& result) {
    const double seconds = std::max(window_.seconds, 1e-9);
    const double peak = peak_tflops_ * 1e12 * seconds;
    MetricRecord record;
    record.step = result.step;
    record.epoch = epochs_done();
    const double loss =
        window_.loss_sum / static_cast<double>(std::max<std::int64_t>(window_.predicting, 1));
    const double rate = static_cast<double>(window_.tokens) / seconds;
    record.values = {{"loss", loss},
                     {"lr", result.rate},
                     {"grad_norm", result.gradient_norm},
                     {"tokens_per_s", rate},
                     {"mfu_causal", window_.flops.causal / peak},
                     {"mfu_paper", window_.flops.paper / peak},
                     {"roof_tflops", peak_tflops_},
                     {"skipped_steps", static_cast<double>(skipped_steps_)}};
    if (pipeline_) {
      const StageTimes& times = pipeline_->times();
      record.values.emplace_back("compute_share", (times.compute - times_.compute) / seconds);
      record.values.emplace_back(
          "exposed_sparse", (times.sparse_communication - times_.sparse_communication) / seconds);
      record.values.emplace_back(
          "exposed_dense", (times.dense_communication - times_.dense_communication) / seconds);
      times_ = times;
    }
    write(record);
    if (progress_ != nullptr) {
      progress_->update({.step = record.step,
                         .epoch = record.epoch,
                         .loss = loss,
                         .grad_norm = result.gradient_norm,
                         .lr = result.rate,
                         .tokens_per_s = rate,
                         .mfu_causal = window_.flops.causal / peak});
    }
    window_ = {};
  }

  void write(const MetricRecord& record) {
    if (lines_) lines_->write(record);
    if (events_) events_->write(record);
  }

  void end_epoch() {
    ++epoch_;
    const EvalConfig& eval = config_.eval;
    std::optional<double> score;
    if (eval.every > 0 && epoch_ % eval.every == 0 && !finished()) {
      score = evaluate_all();
    }
    const std::int64_t every = config_.checkpoint.every_epochs;
    if ((every > 0 && epoch_ % every == 0) || (score && config_.checkpoint.keep_best > 0))
      save(score);
  }

  // Evaluates the held-out splits; returns the validation score that picks the best checkpoint.
  // Where there is a validation split the test split waits for the end, so that nobody chooses by
  // it.
  std::optional<double> evaluate_all() {
    const TraceScope scope(trace_.get(), stages::kEvaluate.name, kComputeLane);
    if (progress_ != nullptr) progress_->pause();
    std::optional<double> score;
    const std::vector<Split> splits = held_out(config_);
    if (pipeline_) pipeline_->assemble(/*everywhere=*/true);
    for (const Split split : splits) {
      if (split == Split::kTest && splits.size() > 1 && !finished()) continue;
      data::Loader loader(store_, eval_loader_options(config_, store_, split, capacity_, share_));
      const std::int64_t most = (config_.eval.max_users + share_.world - 1) / share_.world;
      RankingMetrics metrics = evaluate(ctx_, *trainer_, loader, config_.eval.at, most);
      metrics.add_up(world_);
      MetricRecord record;
      record.step = trainer_->steps_done();
      record.epoch = epochs_done();
      record.split = std::string(name_of(split));
      record.values = metrics.figures();
      for (const auto& [name, value] : record.values) {
        if (split == Split::kValidation && name == config_.eval.metric) score = value;
      }
      write(record);
      if (!leads()) continue;
      if (progress_ != nullptr) progress_->clear();
      std::string text;
      for (const auto& [name, value] : record.values)
        text += fmt::format("  {} {:.4f}", name, value);
      fmt::print("{} after {:.2f} epochs, {} users:{}\n", record.split, record.epoch,
                 metrics.users(), text);
      std::fflush(stdout);
    }
    if (pipeline_) pipeline_->dismiss();
    if (progress_ != nullptr) progress_->resume();
    return score;
  }

  // A checkpoint can only be the best one when its score is known.
  void save_if_scored(std::optional<double> score) {
    if (score && config_.checkpoint.keep_best > 0) save(score);
  }

  void save(std::optional<double> score) {
    if (last_saved_ == trainer_->steps_done() && !score) return;
    const TraceScope scope(trace_.get(), stages::kSave.name, kComputeLane);
    last_saved_ = trainer_->steps_done();
    if (pipeline_) pipeline_->assemble(/*everywhere=*/false);
    if (leads()) write_checkpoint(score);
    if (pipeline_) pipeline_->dismiss();
  }

  void write_checkpoint(std::optional<double> score) {
    CheckpointContents contents;
    contents.step = trainer_->steps_done();
    contents.shards = {{"model", trainer_->model_tensors()},
                       {"optimiser", trainer_->optimiser_tensors()},
                       {"item_names", names_.tensors(store_)}};
    contents.state = {{"loader", loader_.state().to_json()}, {"epoch", epoch_}};
    contents.config = config_text(config_);
    contents.command = command_;
    contents.score = score;
    writer_->save(contents);
  }

  Config config_;
  std::string command_;
  dist::Communicator& world_;
  const Share share_;
  const std::vector<int> nodes_;
  const std::int64_t start_ns_ = Trace::now_ns();
  std::unique_ptr<Trace> trace_;
  data::Store store_;
  Context ctx_;
  data::Loader loader_;
  std::unique_ptr<RetrievalTrainer<T>> trainer_;
  std::unique_ptr<RankPipeline<T>> pipeline_;  // of several ranks, or of another schedule
  dist::LinkChoice link_;                      // between GPUs
  StageTimes times_;                           // at the last line of figures
  std::vector<Batch> batches_;
  std::vector<std::int64_t> lengths_;
  std::deque<Submitted> submitted_;
  std::int64_t steps_per_epoch_ = 0;
  std::int64_t total_steps_ = 0;
  std::int64_t capacity_ = 0;

  RunFolder folder_;
  std::unique_ptr<JsonLines> lines_;
  std::unique_ptr<TensorBoardEvents> events_;
  std::unique_ptr<CheckpointWriter> writer_;
  ItemNames names_;
  Progress* progress_ = nullptr;
  double peak_tflops_ = 1;
  Window window_;
  StepResult last_;
  std::int64_t epoch_ = 0;
  bool epoch_ended_ = false;
  std::int64_t bad_steps_ = 0;
  std::int64_t skipped_steps_ = 0;
  std::int64_t last_saved_ = -1;
};

}  // namespace

void run_training(const Config& config, const std::string& command, dist::Communicator& world) {
  TGR_CHECK(!config.data.store.empty(),
            "data.store is not set; name a store, e.g. --data.store=stores/ml-1m");
  if (config.train.dtype == "bf16") {
    TrainingRun<bf16>(config, command, world).run();
  } else {
    TrainingRun<float>(config, command, world).run();
  }
}

}  // namespace turbogr::train
