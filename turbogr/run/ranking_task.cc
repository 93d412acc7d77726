// The ranking task: what people do with the items they are shown (task.h).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "turbogr/checkpoint/device_tensors.h"
#include "turbogr/checkpoint/shared_checkpoint.h"
#include "turbogr/core/check.h"
#include "turbogr/core/host_memory.h"
#include "turbogr/core/log.h"
#include "turbogr/core/progress.h"
#include "turbogr/eval/sample_view.h"
#include "turbogr/run/item_names.h"
#include "turbogr/run/ranking_baselines.h"
#include "turbogr/run/ranking_figures.h"
#include "turbogr/run/ranking_setup.h"
#include "turbogr/run/run_plan.h"
#include "turbogr/run/sample_setup.h"
#include "turbogr/run/table_checks.h"
#include "turbogr/run/task.h"
#include "turbogr/run/vocabularies.h"
#include "turbogr/train/ranking_trainer.h"

namespace turbogr::run {
namespace {

template <class T>
class RankingTask : public Task {
 public:
  explicit RankingTask(const TaskParts& parts)
      : parts_(parts),
        config_(parts.config),
        store_(parts.store),
        setup_(ranking_setup(config_, store_)),
        ranks_(rank_options(config_, parts.nodes)),
        loader_(store_, sample_loader_options(config_, setup_, parts.share)),
        view_(std::ssize(setup_.layout.tasks)) {
    data::PlanOptions plan = sample_loader_options(config_, setup_, parts.share).queue.plan;
    steps_ = count_steps(loader_.samples().windows, plan, 1, config_.train.epochs);
    RankingBounds batch;
    batch.include(loader_);
    batch_size_ = {batch.samples, batch.tokens, batch.targets};
    bounds_ = batch.part(config_.train.accumulate);
    // Sequences shared out by cost may leave most of a batch's short ones to one rank.
    const std::int64_t ranks = plan.whole_step ? parts.share.world : 1;
    eval_samples_ = (bounds_.samples + ranks - 1) / ranks;
    samples_[static_cast<std::size_t>(data::Split::kTrain)] = loader_.samples().size();
    for (const data::Split split : held_out(config_)) {
      data::SampleLoaderOptions options = evaluation_of(split);
      options.queue.threads = 0;  // only its sizes are asked for
      const data::SampleLoader held(store_, options);
      bounds_.include(held);
      samples_[static_cast<std::size_t>(split)] = held.samples().size();
      if (split == data::Split::kValidation) check_metric(held.samples());
    }
    make_trainer();
  }

  StepCount steps() const override { return steps_; }

  void print_plan() const override {
    warn_of_warmup(config_, steps_.limited_to(config_.train.steps));
    print_store(parts_);
    print_result(
        "train    {} samples, {} targets, {} tokens an epoch; {} steps an epoch, {} in "
        "all\n",
        grouped_text(loader_.samples().size()), grouped_text(loader_.samples().targets()),
        grouped_text(loader_.num_tokens()), grouped_text(steps_.an_epoch),
        grouped_text(steps_.limited_to(config_.train.steps)));
    print_result("predict  {}\n", names_of_tasks());
    print_features("prefix", setup_.features.prefix);
    print_features("items", setup_.features.items);
    std::int64_t rows = 0;
    for (const std::int64_t each : setup_.features.table_rows) rows += each;
    print_result(
        "model    {} {} layers x {} wide, {} heads; {} dense weights, {} rows of {} in {} tables\n",
        config_.model.kind, config_.model.layers, config_.model.width, config_.model.heads,
        grouped_text(trainer_->model().parameters().count()), grouped_text(rows),
        config_.model.embedding, setup_.tables.size());
    if (config_.embedding.cut > 1) {
      std::int64_t named = 0;
      for (const std::int64_t each : setup_.named_rows) named += each;
      print_result("tables   cut to 1/{} of the {} rows that the config names\n",
                   config_.embedding.cut, grouped_text(named));
    }
    print_ranks(parts_, link_);
    print_memory();
    print_compute(parts_);
  }

  std::vector<std::int64_t> lengths() const override {
    std::vector<std::int64_t> lengths;
    for (const data::Window& window : loader_.samples().windows) lengths.push_back(window.length);
    return lengths;
  }

  std::int64_t samples(data::Split split) const override {
    return samples_[static_cast<std::size_t>(split)];
  }

  void check_evaluation() const override {}  // an empty split was found while planning
  PeakRate make_peak() const override {
    return make_peak_rate<T>(parts_.ctx, config_.train.peak_tflops);
  }

  bool read() override { return loader_.next(batch_); }
  data::LoaderState position() const override { return loader_.state(); }
  void restore(const data::LoaderState& position) override { loader_.restore(position); }

  void initialise() override { trainer_->initialise(parts_.ctx); }
  void refresh() override { trainer_->refresh(parts_.ctx); }
  Submitted submit(bool stop) override {
    trainer_->submit(parts_.ctx, view_.of(batch_), stop);
    lengths_.clear();
    for (std::size_t b = 0; b + 1 < batch_.offsets.size(); ++b) {
      lengths_.push_back(batch_.offsets[b + 1] - batch_.offsets[b]);
    }
    return {model::step_flops(layers_, lengths_), first_users(batch_.users)};
  }
  train::StepResult finish() override {
    const train::RankingResult result = trainer_->finish(parts_.ctx);
    warn_of_strange_ids(result);
    return result;
  }
  std::int64_t pending() const override { return trainer_->pending(); }
  std::int64_t queue_length() const override { return trainer_->queue_length(); }
  bool stop_asked() const override { return trainer_->stop_asked(); }
  std::int64_t steps_done() const override { return trainer_->steps_done(); }
  void set_steps_done(std::int64_t steps) override { trainer_->set_steps_done(steps); }
  train::StageTimes times() const override { return trainer_->times(); }
  const train::RankOptions& ranks() const override { return ranks_; }
  std::vector<train::LargestTensor> largest() const override {
    return train::largest_tensors(parts_.ctx, trainer_->model().parameters());
  }

  std::vector<NamedTensor> weights() override { return trainer_->model_tensors(); }
  std::vector<NamedTensor> moments() override { return trainer_->optimiser_tensors(); }
  std::vector<TaskTable> tables() override {
    std::vector<TaskTable> tables;
    embedding::RowSource<T>& rows = trainer_->rows();
    for (std::size_t t = 0; t < setup_.table_names.size(); ++t) {
      tables.push_back({saved_table_name(setup_.table_names[t]), rows.shard(t), rows.sharding(t),
                        rows.shard_index()});
    }
    return tables;
  }
  void settle() override { trainer_->rows().settle(parts_.ctx); }
  std::vector<checkpoint::CheckpointShard> other_shards() override {
    return {{"item_names", names_.tensors(config_, store_)}};
  }
  void check_saved(const checkpoint::Checkpoint& saved) override {
    check_item_names(saved, config_, store_);
    check_vocabularies(saved, config_, store_);
    names_.add_trained(saved, store_);
  }
  std::string start_from(const checkpoint::Checkpoint& saved) override {
    check_saved(saved);
    checkpoint::read_tensors(parts_.ctx, saved, weights(), {"model"});
    for (const TaskTable& table : tables()) {
      checkpoint::read_table(parts_.ctx, saved, table.name, checkpoint::TableParts::kWeights,
                             table.sharding, table.index, table.part);
    }
    return fmt::format("all {} tables known", setup_.tables.size());
  }

  Evaluation evaluate(data::Split split) override {
    last_found_ = evaluated(split);
    return last_found_;
  }

  // Counts alone.
  Baseline compare(data::Split split) override {
    Baseline baseline;
    if (parts_.world.rank() != 0) return baseline;  // every rank would find the same
    const std::vector<RankingBaseline> counted = ranking_baselines(config_, setup_, store_, split);
    for (const RankingBaseline& each : counted) {
      baseline.lines += fmt::format("{} by counts of {} alone:{}\n", name_of(split), each.name,
                                    figures_text(each.found.figures));
    }
    baseline.warning = below_baselines(name_of(split), last_found_, counted, config_.eval.metric);
    return baseline;
  }

 private:
  Evaluation evaluated(data::Split split) {
    settle();
    data::SampleLoader loader(store_, evaluation_of(split));
    const eval::GroupBy groups = eval::group_by_from_name(config_.eval.group);
    evaluator_->clear();
    while (loader.next(eval_batch_)) {
      evaluator_->add(parts_.ctx, view_.of(eval_batch_), view_.groups(eval_batch_, groups));
    }
    evaluator_->add_up(parts_.world);
    return ranking_figures(*evaluator_, setup_);
  }

  data::SampleLoaderOptions evaluation_of(data::Split split) const {
    return sample_eval_options(config_, setup_, split, eval_samples_, parts_.share);
  }

  void make_trainer() {
    train::RankingTrainOptions options =
        ranking_train_options(config_, setup_, bounds_, steps_.limited_to(config_.train.steps));
    layers_ = model::layer_options(options.model);
    options.batch = batch_size_;
    options.plan_only = config_.run.dry_run;
    std::optional<PlanOnly> planning;
    if (options.plan_only) planning.emplace();
    link_ = choose_link(parts_);
    ranks_.link = link_.link;
    options.ranks = ranks_;
    check_tables(config_, setup_.table_names, setup_.tables, {options.table_memory, ranks_});
    try {
      trainer_ = std::make_unique<train::RankingTrainer<T>>(parts_.ctx, parts_.world, options);
      evaluator_ = std::make_unique<eval::RankingEvaluator<T>>(
          parts_.ctx, trainer_->model(), trainer_->rows(),
          eval::RankingEvaluation{.features = setup_.features,
                                  .memory = options.memory,
                                  .regression = setup_.regression,
                                  .norm_by_batch = options.norm_by_batch});
      if (!options.plan_only) check_room_to_work();
    } catch (const OutOfMemory& error) {
      detail::throw_error(error.what(), " (planned for ", bounds_.samples, " samples of ",
                          bounds_.tokens, " tokens a step and ", setup_.tables.size(),
                          " tables): lower train.batch, train.tokens or data.max_length, or take "
                          "smaller tables");
    }
  }

  void print_memory() const {
    const Device device = parts_.ctx.device();
    PlannedBytes bytes = trainer_->planned_bytes(parts_.ctx);
    bytes += evaluator_->bytes();
    const std::size_t planned = bytes.on(device);
    const std::size_t activations = trainer_->model().activation_bytes();
    const std::size_t workspace = parts_.ctx.workspace().capacity();
    const std::size_t tables = trainer_->rows().bytes().on(device);
    print_result(
        "memory   {:.1f} MiB{} planned: {:.1f} activations, {:.1f} workspace, {:.1f} tables and "
        "their state, {:.1f} a step's rows, dense weights, their state and inputs\n",
        mib(planned), parts_.share.world > 1 ? " a rank" : "", mib(activations), mib(workspace),
        mib(tables), mib(planned - activations - workspace - tables));
    if (device != Device::kCuda) return;  // all of it, and printed
    print_result("         and {:.1f} MiB of the host's: lists of rows, inputs{}\n",
                 mib(bytes.host), config_.embedding.memory == "host" ? ", the tables" : "");
  }

  // Before a run goes by a figure that no evaluation gives.
  void check_metric(const data::Samples& validation) const {
    if (config_.checkpoint.keep_best == 0 && config_.train.patience == 0) return;
    const std::string& metric = config_.eval.metric;
    const bool compares =
        eval::compares_in_groups(validation, eval::group_by_from_name(config_.eval.group));
    std::vector<std::string> known = ranking_figure_names(setup_);
    if (!compares) std::erase_if(known, is_group_figure);
    TGR_CHECK(std::find(known.begin(), known.end(), metric) != known.end(), "eval.metric = \"",
              metric, "\" picks the best checkpoint and ends a run (train.patience), and ",
              !compares && is_group_figure(metric)
                  ? fmt::format("GAUC compares the targets of a {0} (eval.group), and no {0} has "
                                "two on the validation split: an evaluation gives ",
                                config_.eval.group)
                  : "an evaluation gives ",
              fmt::format("{}", fmt::join(known, ", ")), "; choose one of these");
  }

  void warn_of_strange_ids(const train::RankingResult& result) {
    if (result.out_of_range == 0 || warned_ || parts_.world.rank() != 0) return;
    warned_ = true;
    log::warn("step {}: {} ids lie outside of their tables and read row 0 instead", result.step,
              result.out_of_range);
  }

  std::string names_of_tasks() const {
    std::string text;
    for (std::size_t k = 0; k < setup_.layout.tasks.size(); ++k) {
      text += fmt::format("{}{}{}", k == 0 ? "" : ", ", setup_.layout.tasks[k].name,
                          setup_.regression[k] != 0 ? " (a number)" : "");
    }
    return text;
  }

  void print_features(std::string_view place, const std::vector<model::Feature>& features) const {
    std::string text;
    for (const model::Feature& feature : features) {
      text += fmt::format("{}{} ({} rows{})", text.empty() ? "" : ", ", feature.name,
                          grouped_text(setup_.features.table_rows[feature.table]),
                          setup_.table_names[feature.table] == feature.name
                              ? ""
                              : " of " + setup_.table_names[feature.table]);
    }
    print_result("{:<8} {}\n", place, text.empty() ? "none" : text);
  }

  const TaskParts parts_;
  const Config& config_;
  const data::Store& store_;
  const RankingSetup setup_;
  train::RankOptions ranks_;
  dist::LinkChoice link_;  // between GPUs
  data::SampleLoader loader_;
  model::RankingBatchSize batch_size_;  // of a training step
  std::int64_t eval_samples_ = 0;       // of a rank at a time
  RankingBounds bounds_;                // of what is computed at a time, in training and evaluation
  std::array<std::int64_t, 3> samples_ = {};  // of each split
  std::unique_ptr<train::RankingTrainer<T>> trainer_;
  std::unique_ptr<eval::RankingEvaluator<T>> evaluator_;
  model::ModelOptions layers_;
  data::SampleBatch batch_, eval_batch_;
  eval::SampleView view_;
  bool warned_ = false;
  std::vector<std::int64_t> lengths_;
  StepCount steps_;
  ItemNames names_;
  Evaluation last_found_;  // by the last evaluation
};

}  // namespace

std::unique_ptr<Task> make_ranking_task(const TaskParts& parts) {
  if (parts.config.train.dtype == "bf16") return std::make_unique<RankingTask<bf16>>(parts);
  return std::make_unique<RankingTask<float>>(parts);
}

}  // namespace turbogr::run
