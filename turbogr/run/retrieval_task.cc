// The retrieval task: the next item of a history, among all items (task.h).
#include <fmt/format.h>

#include <algorithm>

#include "turbogr/checkpoint/device_tensors.h"
#include "turbogr/checkpoint/shared_checkpoint.h"
#include "turbogr/core/check.h"
#include "turbogr/core/host_memory.h"
#include "turbogr/core/progress.h"
#include "turbogr/data/loader.h"
#include "turbogr/eval/evaluate.h"
#include "turbogr/eval/seen_items.h"
#include "turbogr/run/feature_setup.h"
#include "turbogr/run/item_names.h"
#include "turbogr/run/popularity.h"
#include "turbogr/run/retrieval_setup.h"
#include "turbogr/run/run_plan.h"
#include "turbogr/run/table_checks.h"
#include "turbogr/run/task.h"
#include "turbogr/run/vocabularies.h"
#include "turbogr/train/retrieval_trainer.h"

namespace turbogr::run {
namespace {

template <class T>
class RetrievalTask : public Task {
 public:
  explicit RetrievalTask(const TaskParts& parts)
      : parts_(parts),
        config_(parts.config),
        store_(parts.store),
        features_(retrieval_features(config_, store_)),
        loader_(store_, train_loader_options(config_, store_, parts.share)) {
    for (std::int64_t part = 0; part < config_.train.accumulate; ++part) batches_.emplace_back();
    data::LoaderOptions options = train_loader_options(config_, store_, parts.share);
    options.plan.reallocate = nullptr;  // moves windows between ranks, not between steps
    steps_ = count_steps(data::make_windows(store_, options.windows), options.plan,
                         config_.train.accumulate, config_.train.epochs);
    capacity_ = std::max(loader_.max_batch_tokens(), config_.data.max_length);
    train::RetrievalOptions training = retrieval_options(
        config_, num_signals(store_), steps_.limited_to(config_.train.steps), capacity_);
    training.ranks = rank_options(config_, parts.nodes);
    add_features(features_, loader_.max_batch_samples(), training);
    make_trainer(training);
  }

  StepCount steps() const override { return steps_; }

  void print_plan() const override {
    warn_of_warmup(config_, steps_.limited_to(config_.train.steps));
    print_store(parts_);
    print_result("train    {} sequences, {} tokens an epoch; {} steps an epoch, {} in all\n",
                 grouped_text(loader_.num_windows()), grouped_text(loader_.num_tokens()),
                 grouped_text(steps_.an_epoch),
                 grouped_text(steps_.limited_to(config_.train.steps)));
    print_result(
        "model    {} {} layers x {} wide, {} heads, bias {}; {} dense weights, {} in the item "
        "table\n",
        config_.model.kind, config_.model.layers, config_.model.width, config_.model.heads,
        config_.model.bias, grouped_text(trainer_->model().parameters().count()),
        grouped_text(store_.num_items() * config_.model.width));
    print_features();
    print_ranks(parts_, link_);
    print_memory();
    print_compute(parts_);
  }

  std::vector<std::int64_t> lengths() const override {
    std::vector<std::int64_t> lengths;
    for (const data::Window& window :
         data::make_windows(store_, train_loader_options(config_, store_).windows)) {
      lengths.push_back(window.length);
    }
    return lengths;
  }

  void check_evaluation() const override { run::check_evaluation(config_, store_); }
  PeakRate make_peak() const override {
    return make_peak_rate<T>(parts_.ctx, config_.train.peak_tflops);
  }

  // Up to `accumulate` batches.
  bool read() override {
    batches_read_ = 0;
    while (batches_read_ < batches_.size() && !epoch_ended_) {
      if (loader_.next(batches_[batches_read_])) {
        ++batches_read_;
      } else {
        epoch_ended_ = true;
      }
    }
    if (batches_read_ == 0) epoch_ended_ = false;
    return batches_read_ > 0;
  }
  data::LoaderState position() const override { return loader_.state(); }
  void restore(const data::LoaderState& position) override { loader_.restore(position); }

  void initialise() override { trainer_->initialise(parts_.ctx); }
  void refresh() override { trainer_->refresh(parts_.ctx); }
  Submitted submit(bool stop) override {
    trainer_->submit(parts_.ctx, {batches_.data(), batches_read_}, stop);
    Submitted step;
    for (std::size_t part = 0; part < batches_read_; ++part) {
      const data::Batch& batch = batches_[part];
      lengths_.clear();
      for (std::size_t b = 0; b + 1 < batch.offsets.size(); ++b) {
        lengths_.push_back(batch.offsets[b + 1] - batch.offsets[b] + features_.num_prefix());
      }
      const model::Flops flops = model::step_flops(trainer_->model().options(), lengths_);
      step.flops.causal += flops.causal;
      step.flops.paper += flops.paper;
    }
    step.users = first_users(batches_[0].users);
    return step;
  }
  train::StepResult finish() override { return trainer_->finish(parts_.ctx); }
  std::int64_t pending() const override { return trainer_->pending(); }
  std::int64_t queue_length() const override { return trainer_->queue_length(); }
  bool stop_asked() const override { return trainer_->stop_asked(); }
  std::int64_t steps_done() const override { return trainer_->steps_done(); }
  void set_steps_done(std::int64_t steps) override { trainer_->set_steps_done(steps); }
  train::StageTimes times() const override { return trainer_->times(); }
  const train::RankOptions& ranks() const override { return trainer_->options().ranks; }
  std::vector<train::LargestTensor> largest() const override {
    return train::largest_tensors(parts_.ctx, trainer_->model().parameters());
  }

  std::vector<NamedTensor> weights() override { return trainer_->model_tensors(); }
  std::vector<NamedTensor> moments() override { return trainer_->optimiser_tensors(); }
  std::vector<TaskTable> tables() override {
    embedding::RowSource<T>& rows = trainer_->rows();
    std::vector<TaskTable> tables = {
        {"items", rows.shard(0), rows.sharding(0), rows.shard_index()}};
    for (std::size_t t = 0; t < features_.tables.size(); ++t) {
      tables.push_back({saved_table_name(features_.table_names[t]), rows.shard(1 + t),
                        rows.sharding(1 + t), rows.shard_index()});
    }
    return tables;
  }
  void settle() override { trainer_->rows().settle(parts_.ctx); }
  std::vector<checkpoint::CheckpointShard> other_shards() override {
    return {{"item_names", names_.tensors(config_, store_)}};
  }
  void check_saved(const checkpoint::Checkpoint& saved) override {
    check_vocabularies(saved, config_, store_);  // first: run.start_from asks for it, too
    check_item_names(saved, config_, store_);
    names_.add_trained(saved, store_);
  }
  std::string start_from(const checkpoint::Checkpoint& saved) override {
    check_vocabularies(saved, config_, store_);
    checkpoint::read_tensors(parts_.ctx, saved, weights());
    names_.add_trained(saved, store_);
    embedding::RowSource<T>& rows = trainer_->rows();
    const std::int64_t known = read_known_rows(parts_.ctx, saved, store_, rows.sharding(0),
                                               rows.shard_index(), rows.shard(0));
    for (std::size_t t = 0; t < features_.tables.size(); ++t) {
      checkpoint::read_table(parts_.ctx, saved, saved_table_name(features_.table_names[t]),
                             checkpoint::TableParts::kWeights, rows.sharding(1 + t),
                             rows.shard_index(), rows.shard(1 + t));
    }
    return fmt::format("{} of {} items known, the others new", known, store_.num_items());
  }

  Evaluation evaluate(data::Split split) override {
    last_metrics_ = metrics_of(split);
    const eval::SeenItems seen = eval::seen_items_from_name(config_.eval.seen);
    return {.figures = last_metrics_->figures(),
            .counts = {{"users", static_cast<double>(last_metrics_->users())},
                       {"repeats", last_metrics_->repeat_share()}},
            .of = fmt::format("{} users", last_metrics_->users()),
            .remark = eval::repeats_text(*last_metrics_, seen)};
  }

  // Popularity alone.
  Baseline compare(data::Split split) override {
    data::Loader loader(store_, evaluation_of(split));
    eval::RankingMetrics popularity =
        eval::evaluate_popularity(loader, item_popularity(config_, store_), evaluate_options());
    popularity.add_up(parts_.world);
    return {fmt::format("{} by popularity alone:{}\n", name_of(split),
                        figures_text(popularity.figures())),
            last_metrics_
                ? below_popularity(name_of(split), *last_metrics_, popularity, config_.eval.metric)
                : ""};
  }

 private:
  void make_trainer(train::RetrievalOptions options) {
    const std::vector<std::int64_t> counts = training_counts(config_, store_);
    options.plan_only = config_.run.dry_run;
    std::optional<PlanOnly> planning;
    if (options.plan_only) planning.emplace();
    link_ = choose_link(parts_);
    options.ranks.link = link_.link;
    check_tables(config_, features_.table_names, features_.tables,
                 {table_memory(config_), options.ranks});
    try {
      trainer_ = std::make_unique<train::RetrievalTrainer<T>>(parts_.ctx, parts_.world, options,
                                                              store_.num_items(), counts);
      if (!options.plan_only) check_room_to_work();
    } catch (const OutOfMemory& error) {
      detail::throw_error(
          error.what(), " (planned for ", capacity_, " tokens a step, ", config_.negatives.count,
          " negatives, ", store_.num_items(), " items of ", config_.model.width, " numbers, ",
          config_.model.layers,
          " layers): lower train.tokens, train.batch or negatives.count, set "
          "train.recompute = true, raise train.accumulate, or take a smaller model");
    }
  }

  void print_features() const {
    if (features_.empty()) return;
    std::int64_t rows = 0;
    for (const embedding::TableOptions& table : features_.tables) rows += table.rows;
    print_result(
        "features {} of items, {} of events, {} of users before the history; {} weights in their "
        "tables; candidates by {}\n",
        features_.items.size(), features_.events.size(), features_.prefix.size(),
        grouped_text(rows * config_.model.width),
        features_.encodes_items() ? "id and features" : "id");
  }

  // Tokens that the model has memory for, those before histories included.
  std::int64_t room() const { return train::model_memory(trainer_->options()).capacity; }

  void print_memory() const {
    const Device device = parts_.ctx.device();
    const PlannedBytes bytes = trainer_->planned_bytes(parts_.ctx);
    const std::size_t planned = bytes.on(device);
    const std::size_t activations = trainer_->model().activation_bytes();
    const std::size_t workspace = parts_.ctx.workspace().capacity();
    const std::size_t table = trainer_->rows().bytes().on(device);
    const std::size_t steps = trainer_->step_bytes().on(device);
    print_result(
        "memory   {:.1f} MiB{} planned: {:.1f} activations, {:.1f} workspace, {:.1f} item table "
        "and its state, {:.1f} a step's negatives and rows, {:.1f} dense weights, their state and "
        "inputs\n",
        mib(planned), parts_.share.world > 1 ? " a rank" : "", mib(activations), mib(workspace),
        mib(table), mib(steps), mib(planned - activations - workspace - table - steps));
    if (device != Device::kCuda) return;  // all of it, and printed
    print_result("         and {:.1f} MiB of the host's: negatives drawn, inputs{}\n",
                 mib(bytes.host),
                 config_.embedding.memory == "host" ? ", the item table and its state" : "");
  }

  eval::RankingMetrics metrics_of(data::Split split) {
    data::Loader loader(store_, evaluation_of(split));
    eval::RankingMetrics metrics = eval::evaluate<T>(
        parts_.ctx,
        {trainer_->model(), trainer_->rows(), features_, trainer_->options().parts, room()}, loader,
        evaluate_options());
    metrics.add_up(parts_.world);
    return metrics;
  }

  eval::EvaluateOptions evaluate_options() const {
    return {.cutoffs = config_.eval.at,
            .seen = eval::seen_items_from_name(config_.eval.seen),
            .progress = {}};
  }

  data::LoaderOptions evaluation_of(data::Split split) const {  // eval.max_users of them
    data::LoaderOptions options =
        eval_loader_options(config_, store_, split, capacity_, parts_.share);
    options.plan.budget = data::BatchBudget::tokens(room(), features_.num_prefix());
    options.windows.max_users = config_.eval.max_users;
    return options;
  }

  const TaskParts parts_;
  const Config& config_;
  const data::Store& store_;
  const eval::RetrievalFeatures features_;
  data::Loader loader_;
  std::unique_ptr<train::RetrievalTrainer<T>> trainer_;
  dist::LinkChoice link_;  // between GPUs
  std::vector<data::Batch> batches_;
  std::size_t batches_read_ = 0;
  bool epoch_ended_ = false;
  std::vector<std::int64_t> lengths_;
  StepCount steps_;
  std::int64_t capacity_ = 0;
  ItemNames names_;
  std::optional<eval::RankingMetrics> last_metrics_;  // of the last split evaluated
};

}  // namespace

std::unique_ptr<Task> make_retrieval_task(const TaskParts& parts) {
  if (parts.config.train.dtype == "bf16") return std::make_unique<RetrievalTask<bf16>>(parts);
  return std::make_unique<RetrievalTask<float>>(parts);
}

}  // namespace turbogr::run
