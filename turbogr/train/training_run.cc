#include "turbogr/train/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/log.h"
#include "turbogr/data/interrupt.h"
#include "turbogr/data/store.h"
#include "turbogr/model/flops.h"
#include "turbogr/train/checkpoint.h"
#include "turbogr/train/checkpoint_writer.h"
#include "turbogr/train/device_tensors.h"
#include "turbogr/train/evaluate.h"
#include "turbogr/train/item_names.h"
#include "turbogr/train/lengths.h"
#include "turbogr/train/metrics.h"
#include "turbogr/train/progress.h"
#include "turbogr/train/roof.h"
#include "turbogr/train/run_folder.h"
#include "turbogr/train/run_options.h"
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
  double loss_sum = 0;  // over tokens
  std::int64_t tokens = 0;
  double seconds = 0;
  model::Flops flops;
};

template <class T>
class TrainingRun {
 public:
  TrainingRun(const Config& config, const std::string& command)
      : config_(config),
        command_(command),
        store_(config.data.store),
        ctx_({.device = (check_run(config, store_), device_of(config)),
              .threads = static_cast<int>(config.train.threads),
              .trace = trace_of(config)}),
        loader_(store_, train_loader_options(config, store_)) {
    for (std::int64_t part = 0; part < config.train.accumulate; ++part) batches_.emplace_back();
    steps_per_epoch_ = count_steps();
    total_steps_ = total_steps();
    const std::int64_t capacity = std::max(loader_.max_batch_tokens(), config.data.max_length);
    trainer_ = std::make_unique<RetrievalTrainer<T>>(
        ctx_, retrieval_options(config, num_signals(store_), total_steps_, capacity),
        store_.num_items());
    capacity_ = capacity;
  }

  void run() {
    print_plan();
    if (config_.run.dry_run) return;
    check_evaluation(config_, store_);
    folder_ = open_run_folder(config_);
    const data::InterruptGuard guard;
    std::optional<std::int64_t> resumed;
    trainer_->initialise(ctx_);
    if (config_.run.resume) resumed = resume();
    if (!config_.run.start_from.empty() && !resumed) start_from();
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
    peak_tflops_ = config_.train.peak_tflops > 0 ? config_.train.peak_tflops : peak_tflops<T>(ctx_);
    train();
    if (config_.run.trace) trace_->write(folder_.trace());
  }

 private:
  Trace* trace_of(const Config& config) {
    if (config.run.trace) trace_ = std::make_unique<Trace>();
    return trace_.get();
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

  // Walks one epoch's plan without reading any event.
  std::int64_t count_steps() const {
    const data::LoaderOptions options = train_loader_options(config_, store_);
    const std::vector<data::Window> windows = data::make_windows(store_, options.windows);
    data::BatchPlanner planner(windows, options.plan);
    std::int64_t batches = 0;
    while (planner.next_step()) ++batches;
    return (batches + config_.train.accumulate - 1) / config_.train.accumulate;
  }

  std::int64_t total_steps() const {
    const std::int64_t most =
        std::numeric_limits<std::int64_t>::max() / std::max<std::int64_t>(steps_per_epoch_, 1);
    const std::int64_t by_epochs = std::min(config_.train.epochs, most) * steps_per_epoch_;
    if (config_.train.steps == 0) return by_epochs;
    return by_epochs == 0 ? config_.train.steps : std::min(by_epochs, config_.train.steps);
  }

  void print_plan() const {
    const auto& parameters = trainer_->model().parameters();
    fmt::print("data     {}: {} users, {} items, {} events\n", config_.data.store,
               grouped_text(store_.num_users()), grouped_text(store_.num_items()),
               grouped_text(store_.num_events()));
    fmt::print("train    {} sequences, {} tokens an epoch; {} steps an epoch, about {} in all\n",
               grouped_text(loader_.num_windows()), grouped_text(loader_.num_tokens()),
               grouped_text(steps_per_epoch_), grouped_text(total_steps_));
    fmt::print(
        "model    {} {} layers x {} wide, {} heads, bias {}; {} dense weights, {} in the item "
        "table\n",
        config_.model.kind, config_.model.layers, config_.model.width, config_.model.heads,
        config_.model.bias, grouped_text(parameters.count()),
        grouped_text(store_.num_items() * config_.model.width));
    fmt::print(
        "memory   {:.1f} MiB planned: {:.1f} activations, {:.1f} workspace, {:.1f} item table and "
        "its state\n",
        mib(trainer_->planned_bytes(ctx_)), mib(trainer_->model().activation_bytes()),
        mib(ctx_.workspace().capacity()), mib(trainer_->table().bytes()));
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

  static double mib(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

  std::int64_t resume() {
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
    read_tensors(ctx_, saved, trainer_->model_tensors(), {"model"});
    read_tensors(ctx_, saved, trainer_->optimiser_tensors(), {"optimiser"});
    trainer_->set_steps_done(saved.step());
    trainer_->refresh(ctx_);
    loader_.restore(data::LoaderState::from_json(saved.state().at("loader").get<std::string>()));
    epoch_ = saved.state().at("epoch").get<std::int64_t>();
    last_saved_ = saved.step();  // saving it again without its score would lose that
    log::info("resumed from {} at step {}", saved.folder(), saved.step());
    return saved.step();
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
    const std::int64_t known =
        read_known_rows(ctx_, saved, store_, trainer_->table().weight_tensor());
    trainer_->refresh(ctx_);
    log::info("started from {}: {} of {} items known, the others new", saved.folder(), known,
              store_.num_items());
  }

  void train() {
    Progress progress(stderr, Progress::choose(config_.log.progress, stderr), total_steps_,
                      trainer_->steps_done());
    progress_ = &progress;
    while (!finished() && !data::interrupted()) {
      const double begin = seconds_now();
      const std::size_t parts = next_batches();
      if (parts == 0) {
        finish_steps(0);
        end_epoch();
        continue;
      }
      trainer_->submit(ctx_, {batches_.data(), parts});
      remember(parts);
      finish_steps(trainer_->queue_length() - 1);
      window_.seconds += seconds_now() - begin;
      after_step();
    }
    finish_steps(0);
    progress_ = nullptr;
    if (window_.tokens > 0) log_window(last_);
    save(std::nullopt);
    writer_->wait();
    if (data::interrupted()) {
      log::info("stopped at step {}; go on with --run.resume=true", trainer_->steps_done());
      return;
    }
    save_if_scored(evaluate_all());
    writer_->wait();
    log::info("finished at step {}; look at it with `turbogr eval --checkpoint {}`",
              trainer_->steps_done(), config_.run.dir);
  }

  // The smaller of steps and epochs ends a run. With a token budget epochs differ by a step or two,
  // so total_steps_ is what the progress and the learning rate go by, not the end.
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
    while (trainer_->pending() > left) {
      const StepResult result = trainer_->finish();
      const Submitted step = std::move(submitted_.front());
      submitted_.pop_front();
      window_.loss_sum += result.loss * static_cast<double>(result.tokens);
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
        window_.loss_sum / static_cast<double>(std::max<std::int64_t>(window_.tokens, 1));
    const double rate = static_cast<double>(window_.tokens) / seconds;
    record.values = {{"loss", loss},
                     {"lr", result.rate},
                     {"grad_norm", result.gradient_norm},
                     {"tokens_per_s", rate},
                     {"mfu_causal", window_.flops.causal / peak},
                     {"mfu_paper", window_.flops.paper / peak},
                     {"skipped_steps", static_cast<double>(skipped_steps_)}};
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
    lines_->write(record);
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
    if (progress_ != nullptr) progress_->pause();
    std::optional<double> score;
    const std::vector<Split> splits = held_out(config_);
    for (const Split split : splits) {
      if (split == Split::kTest && splits.size() > 1 && !finished()) continue;
      data::Loader loader(store_, eval_loader_options(config_, store_, split, capacity_));
      const RankingMetrics metrics =
          evaluate(ctx_, *trainer_, loader, config_.eval.at, config_.eval.max_users);
      MetricRecord record;
      record.step = trainer_->steps_done();
      record.epoch = epochs_done();
      record.split = std::string(name_of(split));
      record.values = metrics.figures();
      for (const auto& [name, value] : record.values) {
        if (split == Split::kValidation && name == config_.eval.metric) score = value;
      }
      write(record);
      if (progress_ != nullptr) progress_->clear();
      std::string text;
      for (const auto& [name, value] : record.values)
        text += fmt::format("  {} {:.4f}", name, value);
      fmt::print("{} after {:.2f} epochs, {} users:{}\n", record.split, record.epoch,
                 metrics.users(), text);
      std::fflush(stdout);
    }
    if (progress_ != nullptr) progress_->resume();
    return score;
  }

  // A checkpoint can only be the best one when its score is known.
  void save_if_scored(std::optional<double> score) {
    if (score && config_.checkpoint.keep_best > 0) save(score);
  }

  void save(std::optional<double> score) {
    if (last_saved_ == trainer_->steps_done() && !score) return;
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
    last_saved_ = contents.step;
  }

  Config config_;
  std::string command_;
  std::unique_ptr<Trace> trace_;
  data::Store store_;
  Context ctx_;
  data::Loader loader_;
  std::unique_ptr<RetrievalTrainer<T>> trainer_;
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

void run_training(const Config& config, const std::string& command) {
  TGR_CHECK(!config.data.store.empty(),
            "data.store is not set; name a store, e.g. --data.store=stores/ml-1m");
  if (config.train.dtype == "bf16") {
    TrainingRun<bf16>(config, command).run();
  } else {
    TrainingRun<float>(config, command).run();
  }
}

}  // namespace turbogr::train
