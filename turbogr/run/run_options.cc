#include "turbogr/run/run_options.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <thread>

#include "turbogr/balance/balancer.h"
#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/data/target_counts.h"
#include "turbogr/dist/device_communicator.h"
#include "turbogr/dist/topology.h"
#include "turbogr/eval/evaluate.h"
#include "turbogr/model/flops.h"
#include "turbogr/run/combinations.h"
#include "turbogr/run/config_negatives.h"

namespace turbogr::run {
namespace {

constexpr std::int64_t kDefaultBatch = 128;
constexpr std::int64_t kWidestFeedForward = 1 << 20;

data::CollateOptions collate_options(const Config& config, const data::Store& store) {
  data::CollateOptions collate;
  collate.time_unit = config.model.time_unit == "milliseconds" ? data::TimeUnit::kMilliseconds
                                                               : data::TimeUnit::kSeconds;
  collate.signals = config.model.actions;
  if (!store.has_times()) collate.time_unit = data::TimeUnit::kSeconds;
  return collate;
}

}  // namespace

Device device_of(const Config& config) {
  return config.train.device == "cuda" ? Device::kCuda : Device::kCpu;
}

Device device_for_rank(const Config& config, const dist::Communicator& world) {
  const Device device = device_of(config);
  if (device == Device::kCuda && num_gpus() > 0) {
    use_gpu(dist::gpu_of_rank(world, num_gpus()));
  }
  return device;
}

std::int64_t num_signals(const data::Store& store) {
  return static_cast<std::int64_t>(store.manifest().signals.size());
}

std::int64_t feed_forward_width(const ModelConfig& model) {
  const double width = model.ffn * static_cast<double>(model.width);
  TGR_CHECK(width <= kWidestFeedForward, "model.ffn = ", model.ffn,
            " makes a feed-forward of width ", width, "; ", kWidestFeedForward, " is the most");
  return std::max<std::int64_t>(1, std::llround(width));
}

model::ModelOptions model_options(const Config& config, std::int64_t signals) {
  const ModelConfig& m = config.model;
  model::ModelOptions options;
  options.kind = model::model_kind_from_name(m.kind);
  options.layers = m.layers;
  options.width = m.width;
  options.heads = static_cast<int>(m.heads);
  options.dq = m.dq;
  options.dv = m.dv;
  options.feed_forward = feed_forward_width(m);
  options.max_length = config.data.max_length;
  options.norm_length = static_cast<double>(m.norm_length);
  options.alpha = m.alpha;
  options.dropout = m.dropout;
  options.bias = model::bias_kind_from_name(m.bias);
  options.silu_on_all = m.silu == "all";
  options.affine_norms = m.affine;
  options.concat = m.concat;
  options.norm_heads = m.norm_heads;
  options.window = m.window;
  if (m.actions) options.actions = signals;
  return options;
}

std::vector<std::int64_t> training_counts(const Config& config, const data::Store& store) {
  const train::NegativeOptions options = negative_options(config.negatives);
  const bool caches = config.embedding.memory == "host" && config.embedding.cache > 0;
  const bool encodes = !config.features.empty() && config.model.output == "item";
  if (options.kind == train::NegativeKind::kUniform && !caches && !encodes) return {};
  return data::target_counts(
      store, data::make_windows(store, train_loader_options(config, store).windows));
}

train::RetrievalOptions retrieval_options(const Config& config, std::int64_t signals,
                                          std::int64_t total_steps, std::int64_t capacity) {
  train::RetrievalOptions options;
  options.model = model_options(config, signals);
  options.memory = {.capacity = capacity,
                    .recompute = config.train.recompute,
                    .deterministic = config.train.deterministic,
                    .fp8 = config.train.products == "fp8"};
  options.parts = {.prefix = config.model.prefix, .targets = config.model.targets};
  options.temperature = config.model.temperature;
  options.negatives = negative_options(config.negatives);
  options.dense.rate = config.optim.lr;
  options.dense.beta1 = config.optim.beta1;
  options.dense.beta2 = config.optim.beta2;
  options.dense.epsilon = config.optim.eps;
  options.dense.decay = config.optim.weight_decay;
  options.decay_vectors = config.optim.decay_vectors;
  options.clip = config.optim.clip;
  options.schedule = {.kind = optim::schedule_from_name(config.optim.schedule),
                      .warmup_steps = config.optim.warmup,
                      .total_steps = total_steps,
                      .floor = config.optim.final_lr};
  options.table_optimiser = embedding::sparse_optimiser_from_name(config.embedding.optimiser);
  options.table_in_host_memory = config.embedding.memory == "host";
  options.table_cache = config.embedding.cache;
  options.table_dtype = dtype_from_name(config.embedding.dtype);
  options.table.rate = config.embedding.lr;
  options.table.beta1 = config.embedding.beta1;
  options.table.beta2 = config.embedding.beta2;
  options.table.epsilon = config.embedding.eps;
  options.table.decay = config.embedding.weight_decay;
  options.table.decay_in_gradient = config.embedding.decay == "l2";
  options.table.epsilon_outside = config.embedding.eps_place == "outside";
  options.table_start = config.embedding.start == "uniform"
                            ? ops::RowStart::uniform(config.embedding.init)
                            : ops::RowStart(config.embedding.init);
  options.accumulate = config.train.accumulate;
  options.seed = static_cast<std::uint64_t>(config.run.seed);
  return options;
}

void share_by_cost(const Config& config, const model::ModelOptions& model,
                   data::PlanOptions& plan) {
  if (plan.world == 1 || !config.dist.balance) return;
  const auto cost_of = [&](std::int64_t length) {
    return model::step_flops(model, {&length, 1}).causal;
  };
  // a n + b n^2 through the first two lengths.
  const double one = cost_of(1);
  const double two = cost_of(2);
  const double per_pair = std::max(0.0, (two - 2 * one) / 2);
  const balance::CostModel cost = {.per_token = one - per_pair, .per_pair = per_pair};
  plan.reallocate = [cost, world = plan.world, balancer = std::shared_ptr<balance::Balancer>()](
                        std::span<const std::int64_t> lengths, std::int64_t max_tokens,
                        std::span<std::int32_t> rank_of) mutable {
    if (!balancer) {
      balancer = std::make_shared<balance::Balancer>(
          balance::BalancerOptions{.cost = cost, .ranks = world, .max_tokens = max_tokens});
    }
    balancer->plan(lengths, rank_of);
    std::copy(balancer->rank_of().begin(), balancer->rank_of().end(), rank_of.begin());
  };
}

data::PlanOptions plan_options(const Config& config, std::int64_t signals, int world) {
  data::PlanOptions options;
  options.world = world;
  share_by_cost(config, model_options(config, signals), options);
  // A step is computed in `accumulate` parts, each a batch of the loader.
  const std::int64_t parts = config.train.accumulate;
  if (config.train.tokens > 0) {
    options.budget = data::BatchBudget::tokens(
        std::max(config.data.max_length, (config.train.tokens + parts - 1) / parts));
  } else {
    const std::int64_t batch = config.train.batch > 0 ? config.train.batch : kDefaultBatch;
    options.budget =
        data::BatchBudget::samples(std::max<std::int64_t>(1, (batch + parts - 1) / parts));
    options.whole_step = true;
  }
  options.seed = static_cast<std::uint64_t>(config.run.seed);
  options.shuffle = config.data.shuffle;
  return options;
}

data::LoaderOptions train_loader_options(const Config& config, const data::Store& store,
                                         const Share& share) {
  data::LoaderOptions options;
  options.rank = share.rank;
  options.plan = plan_options(config, num_signals(store), share.world);
  options.windows.holdout = data::Holdout(config.data.holdout);
  options.windows.split = data::Split::kTrain;
  options.windows.max_length = config.data.max_length;
  options.windows.long_history = data::long_history_from_name(config.data.history);
  options.collate = collate_options(config, store);
  options.threads = static_cast<int>(config.data.workers);
  options.queue = static_cast<int>(config.data.prefetch);
  return options;
}

data::LoaderOptions eval_loader_options(const Config& config, const data::Store& store,
                                        data::Split split, std::int64_t capacity,
                                        const Share& share) {
  data::LoaderOptions options = train_loader_options(config, store, share);
  options.plan.reallocate = nullptr;
  options.plan.whole_step = false;
  options.windows.split = split;
  options.windows.long_history = data::LongHistory::kLast;
  options.plan.budget = data::BatchBudget::tokens(std::max(capacity, config.data.max_length));
  options.plan.shuffle = false;
  options.windows.user_seed = static_cast<std::uint64_t>(config.run.seed);
  return options;
}

Device table_memory(const Config& config) {
  return config.embedding.memory == "host" ? Device::kPinned : device_of(config);
}

std::string schedule_of(const Config& config, int world) {
  if (config.train.schedule != "auto") return config.train.schedule;
  if (world == 1) return "serial";
  // Ranking has not been run on several GPUs.
  if (config.ranks() && config.train.device == "cuda") return "serial";
  const bool ahead = config.dist.replicas == "exact" && config.train.device == "cpu";
  return ahead ? "exact_prefetch" : "overlap";
}

train::RankOptions rank_options(const Config& config, const std::vector<int>& nodes) {
  const DistConfig& dist = config.dist;
  train::RankOptions options;
  options.schedule =
      train::step_schedule_from_name(schedule_of(config, static_cast<int>(nodes.size())));
  options.delay = config.train.delay;
  options.warmup = config.train.sync_steps;
  options.topology =
      dist::make_topology(dist::play_nodes(nodes, static_cast<int>(dist.ranks_per_node)),
                          nodes.size() > 1 ? static_cast<int>(dist.group) : 1, dist.spread);
  options.placement = embedding::placement_from_name(dist.placement);
  options.replicas = embedding::replica_mode_from_name(dist.replicas);
  options.average_every = dist.average_every;
  options.row_wire = dtype_from_name(dist.rows);
  options.gradient_wire = dtype_from_name(dist.gradients);
  options.bucket_bytes = dist.bucket;
  options.wait.timeout_seconds = dist.timeout;
  check_combinations(config, layout_of(config, options));
  return options;
}

RunLayout layout_of(const Config& config, const train::RankOptions& ranks) {
  return {.world = static_cast<int>(ranks.topology.group_of.size()),
          .groups = ranks.topology.num_groups(),
          .sharded = ranks.sharded() || config.dist.link == "nccl"};
}

std::vector<data::Split> held_out(const Config& config) {
  if (!data::Holdout(config.data.holdout).has_validation()) return {data::Split::kTest};
  return {data::Split::kValidation, data::Split::kTest};
}

void check_evaluation(const Config& config, const data::Store& store) {
  for (const data::Split split : held_out(config)) {
    const data::LoaderOptions options =
        eval_loader_options(config, store, split, config.data.max_length);
    TGR_CHECK(!data::make_windows(store, options.windows).empty(), "'", config.data.store,
              "' has no user with enough events for the ", name_of(split),
              " split of data.holdout = \"", config.data.holdout, "\"; ",
              options.windows.holdout.wanted_text(split));
  }
  if (config.checkpoint.keep_best == 0 && config.train.patience == 0) return;
  std::string known;
  for (const auto& [name, value] : eval::RankingMetrics(config.eval.at).figures()) {
    if (name == config.eval.metric) return;
    known += (known.empty() ? "" : ", ") + name;
  }
  detail::throw_error("eval.metric = \"", config.eval.metric,
                      "\" picks the best checkpoint and ends a run (train.patience), and an "
                      "evaluation gives ",
                      known, "; choose one of these, or add its K to eval.at");
}

void check_run(const Config& config, const data::Store& store) {
  TGR_CHECK(
      config.train.device == "cpu" || kWithCuda,
      "train.device is \"cuda\"; this build has no CUDA: set train.device = \"cpu\", or build "
      "with `make cuda`");
  TGR_CHECK(!config.model.actions || store.has_signals(), "model.actions is true but the store '",
            store.folder().string(), "' has no action signals; leave it out");
  if (config.ranks()) return;  // ranking_setup.cc asks the rest
  const model::ModelOptions model = model_options(config, num_signals(store));
  TGR_CHECK(!model.time_bias() || store.has_times(), "model.bias is \"", config.model.bias,
            "\" but the store '", store.folder().string(),
            "' has no times (order only); use model.bias = \"position\" or \"none\"");
  TGR_CHECK(config.model.time_unit != "milliseconds" || !store.has_times() ||
                store.time_unit() == data::TimeUnit::kMilliseconds,
            "model.time_unit is \"milliseconds\" but the store '", store.folder().string(),
            "' has times in seconds; use model.time_unit = \"seconds\"");
  TGR_CHECK(config.train.epochs > 0 || config.train.steps > 0,
            "neither train.epochs nor train.steps is set; the run would never end");
}

}  // namespace turbogr::run
