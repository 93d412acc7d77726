#include "turbogr/run/sample_setup.h"

#include "turbogr/run/run_options.h"

namespace turbogr::run {

data::SampleOptions sample_options(const Config& config, data::Split split) {
  const SamplesConfig& samples = config.samples;
  data::SampleOptions options;
  options.holdout = data::Holdout(config.data.holdout);
  options.split = split;
  options.builder = data::sample_builder_from_name(samples.builder);
  options.targets = samples.targets;
  options.max_history = config.data.max_length;
  options.history_before_split = config.samples.history == "split";
  options.targets_at_last_time = config.samples.target_time == "last";
  if (split == data::Split::kTrain && samples.order == "time") {
    options.order = data::SampleOrder::kTime;
    options.window_seconds = samples.window;
    if (samples.whole_batches) options.window_batch = config.train.batch;
  }
  options.anchors = {.signals = samples.anchor,
                     .actions = samples.actions,
                     .per_action = samples.per_action,
                     .lookback = samples.lookback,
                     .least_history = samples.least_history};
  options.user_seed = static_cast<std::uint64_t>(config.run.seed);
  return options;
}

data::SampleLoaderOptions sample_loader_options(const Config& config, const RankingSetup& setup,
                                                const Share& share) {
  data::SampleLoaderOptions options = {
      .samples = sample_options(config, data::Split::kTrain), .layout = setup.layout, .queue = {}};
  data::PlanOptions& plan = options.queue.plan;
  plan.world = share.world;
  plan.seed = static_cast<std::uint64_t>(config.run.seed);
  plan.shuffle = config.data.shuffle;
  if (config.train.tokens > 0) {
    plan.budget = data::BatchBudget::tokens(config.train.tokens);
  } else {
    plan.budget = data::BatchBudget::samples(config.train.batch);
    plan.whole_step = true;
    plan.sort_batches = config.samples.sort_batches;
  }
  share_by_cost(config, model::layer_options(ranking_options(config, setup, /*most_targets=*/1)),
                plan);
  options.queue.rank = share.rank;
  options.queue.threads = static_cast<int>(config.data.workers);
  options.queue.queue = static_cast<int>(config.data.prefetch);
  return options;
}

data::SampleLoaderOptions sample_eval_options(const Config& config, const RankingSetup& setup,
                                              data::Split split, std::int64_t samples,
                                              const Share& share) {
  data::SampleLoaderOptions options = sample_loader_options(config, setup, share);
  options.samples = sample_options(config, split);
  options.samples.max_users = config.eval.max_users;
  options.queue.plan.whole_step = false;
  options.queue.plan.reallocate = nullptr;
  options.queue.plan.sort_batches = 0;
  options.queue.plan.budget = data::BatchBudget::samples(samples);
  return options;
}

}  // namespace turbogr::run
