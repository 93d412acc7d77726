#include "turbogr/run/trained_ranker.h"

#include <algorithm>
#include <cmath>

#include "turbogr/checkpoint/device_tensors.h"
#include "turbogr/checkpoint/shared_checkpoint.h"
#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/eval/sample_view.h"
#include "turbogr/run/item_names.h"
#include "turbogr/run/ranking_figures.h"
#include "turbogr/run/sample_setup.h"
#include "turbogr/run/serving_rows.h"
#include "turbogr/run/vocabularies.h"
#include "turbogr/train/dense_tensors.h"

namespace turbogr::run {
namespace {

// What memory is needed for: the splits of an evaluation, or one request at a time.
RankingBounds bounds_of(const Config& config, const RankingSetup& setup, const data::Store& store,
                        TrainedRanker::Use use, const Share& share) {
  RankingBounds bounds;
  if (use == TrainedRanker::Use::kScore) {
    return {.samples = 1,
            .tokens = std::ssize(setup.layout.prefix) + config.data.max_length + kTargetsAtOnce,
            .targets = kTargetsAtOnce,
            .most_targets = kTargetsAtOnce};
  }
  for (const data::Split split : held_out(config)) {
    data::SampleLoaderOptions options =
        sample_eval_options(config, setup, split, kSamplesAtOnce, share);
    options.queue.threads = 0;  // only its sizes are asked for
    bounds.include(data::SampleLoader(store, options));
  }
  return bounds;
}

}  // namespace

struct TrainedRanker::Scorer {
  virtual ~Scorer() = default;
  virtual Evaluation evaluate(data::SampleLoader& loader, eval::GroupBy groups) = 0;
  virtual void score(const data::SampleBatch& batch, std::vector<float>& scores) = 0;
  Share share;
};

template <class T>
struct TrainedRanker::ScorerOf : TrainedRanker::Scorer {
  const RankingSetup& setup;
  dist::Communicator& world;
  Context ctx;
  const train::RankingTrainOptions training;
  model::RankingModel<T> model;
  std::unique_ptr<embedding::RowSource<T>> rows;
  eval::RankingEvaluator<T> evaluator;
  eval::RankingScorer<T> scorer;
  eval::SampleView view;

  ScorerOf(const Config& config, const RankingSetup& made, const RankingBounds& bounds, int threads,
           dist::Communicator& ranks)
      : setup(made),
        world(ranks),
        ctx({.device = device_of(config), .threads = threads}),
        training(inference_options(config, made, bounds)),
        model(ctx, training.model, training.memory),
        rows(serving_rows<T>(ctx, world, config, setup.tables)),
        evaluator(ctx, model, *rows,
                  {.features = made.features,
                   .memory = training.memory,
                   .regression = made.regression,
                   .norm_by_batch = training.norm_by_batch}),
        scorer(ctx, model, *rows,
               {.features = made.features,
                .memory = training.memory,
                .norm_by_batch = training.norm_by_batch}),
        view(training.model.tasks) {}

  static train::RankingTrainOptions inference_options(const Config& config,
                                                      const RankingSetup& setup,
                                                      const RankingBounds& bounds) {
    train::RankingTrainOptions options = ranking_train_options(config, setup, bounds);
    options.memory.layers.inference = true;
    options.memory.layers.recompute = false;
    return options;
  }

  void load(const checkpoint::Checkpoint& checkpoint) {
    checkpoint::read_tensors(ctx, checkpoint, train::weight_tensors(model.parameters()), {"model"});
    model.refresh(ctx);
    for (std::size_t t = 0; t < setup.table_names.size(); ++t) {
      checkpoint::read_table(ctx, checkpoint, saved_table_name(setup.table_names[t]),
                             checkpoint::TableParts::kWeights, rows->sharding(t),
                             rows->shard_index(), rows->shard(t));
    }
  }

  void make_fresh() {
    model.initialise(ctx, training.seed);
    rows->initialise(ctx);
  }

  Evaluation evaluate(data::SampleLoader& loader, eval::GroupBy groups) override {
    data::SampleBatch batch;
    evaluator.clear();
    while (loader.next(batch)) {
      evaluator.add(ctx, view.of(batch), view.groups(batch, groups));
    }
    evaluator.add_up(world);
    return ranking_figures(evaluator, setup);
  }

  void score(const data::SampleBatch& batch, std::vector<float>& scores) override {
    const Rows<const T> logits = scorer.score(ctx, view.of(batch));
    for (std::int64_t i = 0; i < logits.rows; ++i) {
      for (std::int64_t k = 0; k < logits.cols; ++k) {
        const float logit = convert<float>(logits(i, k));
        const bool number = setup.regression[static_cast<std::size_t>(k)] != 0;
        scores.push_back(number ? logit : 1 / (1 + std::exp(-logit)));
      }
    }
  }
};

TrainedRanker::TrainedRanker(const checkpoint::Checkpoint& checkpoint, const data::Store& store,
                             int threads, dist::Communicator& world, Use use, Weights weights)
    : config_(parse_config(checkpoint.config(), checkpoint.folder() + "/config.toml")),
      store_(store) {
  TGR_CHECK(config_.ranks(), "checkpoint '", checkpoint.folder(),
            "' is of the retrieval task, which finds items rather than judging them; use `turbogr "
            "recommend`");
  // FuXi has no GPU kernels for several targets, as a request has.
  const bool on_cpu = config_.model.kind == "fuxi" && use == Use::kScore;
  if (!kWithCuda || device_memory().total == 0 || on_cpu) {
    config_.train.device = "cpu";
    config_.embedding.memory = "device";
  }
  check_item_names(checkpoint, config_, store);
  check_vocabularies(checkpoint, config_, store);
  setup_ = ranking_setup(config_, store);
  const Share share = {world.rank(), world.size()};
  const RankingBounds bounds = bounds_of(config_, setup_, store, use, share);
  const auto make = [&]<class T>() {
    auto made = std::make_unique<ScorerOf<T>>(config_, setup_, bounds, threads, world);
    made->share = share;
    weights == Weights::kTrained ? made->load(checkpoint) : made->make_fresh();
    scorer_ = std::move(made);
  };
  config_.train.dtype == "bf16" ? make.template operator()<bf16>()
                                : make.template operator()<float>();
}

TrainedRanker::~TrainedRanker() = default;

Evaluation TrainedRanker::evaluate(data::Split split) {
  return evaluate(split, eval::group_by_from_name(config_.eval.group));
}

Evaluation TrainedRanker::evaluate(data::Split split, eval::GroupBy groups) {
  data::SampleLoader loader(
      store_, sample_eval_options(config_, setup_, split, kSamplesAtOnce, scorer_->share));
  return scorer_->evaluate(loader, groups);
}

std::vector<float> TrainedRanker::score(std::span<const data::SampleRequest> requests) {
  const data::SampleOptions options = sample_options(config_, data::Split::kTest);
  const data::SampleCollator collator(store_, options, setup_.layout);
  data::SampleBatch batch;
  std::vector<float> scores;
  for (const data::SampleRequest& request : requests) {
    // Targets see the history and themselves alone, so pieces score as the whole does.
    for (std::size_t first = 0; first < request.items.size(); first += kTargetsAtOnce) {
      data::SampleRequest piece = request;
      const std::size_t end =
          std::min(request.items.size(), first + static_cast<std::size_t>(kTargetsAtOnce));
      piece.items.assign(request.items.begin() + static_cast<std::ptrdiff_t>(first),
                         request.items.begin() + static_cast<std::ptrdiff_t>(end));
      collator.collate({&piece, 1}, batch);
      scorer_->score(batch, scores);
    }
  }
  return scores;
}

}  // namespace turbogr::run
