#include "turbogr/run/ranking_setup.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/nearest_name.h"

namespace turbogr::run {
namespace {

// Of truncated_normal_rows, whose numbers beyond two deviations are drawn again.
constexpr double kTruncatedDeviation = 0.8796256610342398;

std::string name_for(const std::string& text) {
  std::string name;
  for (const char c : text) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' ? c : '_';
  }
  return name;
}

std::string unique_name(const std::string& wanted, std::set<std::string>& taken) {
  std::string name = wanted;
  for (int i = 2; !taken.insert(name).second; ++i) name = wanted + "_" + std::to_string(i);
  return name;
}

void add_feature(Config& config, std::set<std::string>& taken, const std::string& name,
                 const std::string& from) {
  FeatureConfig feature;
  feature.name = unique_name(name_for(name), taken);
  feature.from = from;
  config.features.push_back(std::move(feature));
}

bool on_item(const FeatureConfig& feature, const data::SampleFeature& reads) {
  if (feature.place != "auto") return feature.place == "item";
  return std::any_of(reads.keys.begin(), reads.keys.end(), [](const data::FeatureSource& key) {
    return key.of_item() || key.of_event();
  });
}

data::SampleFeature sample_feature(const FeatureConfig& feature, const data::Store& store) {
  const std::string where = "[features." + feature.name + "]: ";
  TGR_CHECK(feature.from.empty() != feature.cross.empty(), where,
            feature.from.empty() ? "it reads nothing; name what, as in from = \"item.genres\", or "
                                   "a cross"
                                 : "both from and cross; give one of them");
  TGR_CHECK(feature.cross.empty() || (feature.cross.size() >= 2 && feature.cross.size() <= 3),
            where, "a cross of ", feature.cross.size(), " sources; give two or three");
  data::SampleFeature reads;
  reads.name = feature.name;
  try {
    if (feature.cross.empty()) reads.keys.push_back(data::parse_source(store, feature.from));
    for (const std::string& key : feature.cross) {
      reads.keys.push_back(data::parse_source(store, key));
      TGR_CHECK(!reads.keys.back().is_bag() && !reads.keys.back().is_number(), "a cross of '", key,
                "', which has not one code a row; leave it out");
    }
  } catch (const Error& error) {
    detail::throw_error(where, error.what());
  }
  reads.most_ids = feature.most;
  for (const double edge : feature.edges) reads.buckets.edges.push_back(static_cast<float>(edge));
  TGR_CHECK(std::is_sorted(reads.buckets.edges.begin(), reads.buckets.edges.end(),
                           [](float a, float b) { return a <= b; }) ||
                reads.buckets.edges.size() < 2,
            where, "edges of buckets must rise");
  reads.buckets.unit = feature.unit;
  reads.buckets.most = feature.buckets;
  return reads;
}

const TableConfig* find_table(const Config& config, const std::string& name) {
  const auto found = std::find_if(config.tables.begin(), config.tables.end(),
                                  [&](const TableConfig& table) { return table.name == name; });
  return found == config.tables.end() ? nullptr : &*found;
}

std::uint64_t seed_of(std::uint64_t seed, const std::string& name) {
  std::uint64_t hash = 14695981039346656037u ^ seed;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

// Tables as the features fill them; `rows` of a cross's table must be named.
class Tables {
 public:
  Tables(const Config& config, RankingSetup& setup) : config_(config), setup_(setup) {}

  std::size_t add(const FeatureConfig& feature, data::SampleFeature& reads) {
    const std::string& name = feature.table.empty() ? feature.name : feature.table;
    const TableConfig* given = find_table(config_, name);
    const std::string where = "[features." + feature.name + "]: ";
    check_known(feature, name, given);
    if (reads.is_cross()) {
      TGR_CHECK(given != nullptr && given->rows > 0, where,
                "a cross is hashed into its table; say how large that is, as in [tables.", name,
                "] rows = 100000");
      reads.cross_rows = given->rows;
    }
    TGR_CHECK(given == nullptr || given->rows == 0 || given->rows >= reads.rows(), where,
              "it has ids up to ", reads.rows() - 1, ", and [tables.", name,
              "] has rows = ", given == nullptr ? 0 : given->rows, "; give at least ", reads.rows(),
              ", or 0");
    const auto at = std::find(setup_.table_names.begin(), setup_.table_names.end(), name);
    const auto t = static_cast<std::size_t>(at - setup_.table_names.begin());
    if (at == setup_.table_names.end()) {
      setup_.table_names.push_back(name);
      setup_.features.table_rows.push_back(0);
    }
    std::int64_t& rows = setup_.features.table_rows[t];
    rows = std::max(given != nullptr && given->rows > 0 ? given->rows : rows, reads.rows());
    return t;
  }

  void finish() {
    for (const TableConfig& table : config_.tables) {
      const auto& used = setup_.table_names;
      TGR_CHECK(std::find(used.begin(), used.end(), table.name) != used.end(), "[tables.",
                table.name, "] is read by no feature; ",
                nearest_name(table.name, used).empty()
                    ? "leave it out, or name it in a feature's table"
                    : "did you mean [tables." + nearest_name(table.name, used) + "]?");
      TGR_CHECK(table.width == 0 || table.width == config_.model.embedding, "[tables.", table.name,
                "]: width = ", table.width, ", and model.embedding is ", config_.model.embedding,
                ": rows of all tables are put side by side; leave width out, or change "
                "model.embedding");
    }
    for (std::size_t t = 0; t < setup_.table_names.size(); ++t) {
      const TableConfig* given = find_table(config_, setup_.table_names[t]);
      const TableConfig table = given == nullptr ? TableConfig{} : *given;
      const std::int64_t rows = setup_.features.table_rows[t];
      const double bound = table.init > 0 ? table.init : 1 / std::sqrt(static_cast<double>(rows));
      setup_.tables.push_back(
          {.rows = rows,
           .width = config_.model.embedding,
           .optimiser = embedding::sparse_optimiser_from_name(
               table.optimiser.empty() ? config_.embedding.optimiser : table.optimiser),
           .scale = bound / std::sqrt(3.0) / kTruncatedDeviation,
           .seed = seed_of(static_cast<std::uint64_t>(config_.run.seed), setup_.table_names[t]),
           .dtype = dtype_from_name(table.dtype.empty() ? config_.embedding.dtype : table.dtype)});
    }
  }

 private:
  // A table that is named but not described is fine; one that looks like another's misspelt name
  // is not.
  void check_known(const FeatureConfig& feature, const std::string& name,
                   const TableConfig* given) const {
    if (feature.table.empty() || given != nullptr) return;
    std::vector<std::string> known;
    for (const TableConfig& table : config_.tables) known.push_back(table.name);
    for (const FeatureConfig& other : config_.features) {
      if (other.name == name || (other.table == name && other.name != feature.name)) return;
      known.push_back(other.name);
    }
    const std::string nearest = nearest_name(name, known);
    TGR_CHECK(nearest.empty(), "[features.", feature.name, "]: there is no table '", name,
              "'; the nearest is '", nearest, "'");
  }

  const Config& config_;
  RankingSetup& setup_;
};

void add_tasks(const Config& config, const data::Store& store, RankingSetup& setup) {
  TGR_CHECK(!config.tasks.empty(), "'", store.folder().string(),
            "' has no signals to learn; prepare it with --signal-columns or --label, or name a "
            "number to predict, as in [tasks.watch] number = \"play_time_ms\"");
  for (const TaskConfig& task : config.tasks) {
    const std::string where = "[tasks." + task.name + "]: ";
    TGR_CHECK(task.number.empty() || task.signals.empty(), where,
              "both signals and number; give one of them");
    data::SampleTask labels = {.name = task.name, .signals = 0, .number = task.number};
    try {
      std::vector<std::string> signals = task.signals;
      if (signals.empty() && task.number.empty()) signals = {task.name};
      for (const std::string& signal : signals) labels.signals |= 1u << store.signal_bit(signal);
      if (!task.number.empty()) store.numbers(task.number);
    } catch (const Error& error) {
      detail::throw_error(where, error.what());
    }
    setup.layout.tasks.push_back(std::move(labels));
    setup.regression.push_back(task.number.empty() ? 0 : 1);
    setup.task_weights.push_back(task.weight);
  }
}

}  // namespace

void name_features(Config& config, const data::Store& store) {
  std::set<std::string> taken;
  if (config.features.empty()) {
    add_feature(config, taken, "user", "user");
    add_feature(config, taken, "item", "item");
    for (const data::Feature& feature : store.manifest().features) {
      add_feature(config, taken, feature.name,
                  std::string(name_of(feature.owner)) + "." + feature.name);
    }
  }
  if (!config.tasks.empty()) return;
  taken.clear();
  for (const std::string& signal : store.manifest().signals) {
    TaskConfig task;
    task.name = unique_name(name_for(signal), taken);
    task.signals = {signal};
    config.tasks.push_back(std::move(task));
  }
}

RankingSetup ranking_setup(const Config& config, const data::Store& store) {
  RankingSetup setup;
  Tables tables(config, setup);
  for (const FeatureConfig& feature : config.features) {
    data::SampleFeature reads = sample_feature(feature, store);
    const bool item = on_item(feature, reads);
    const model::Pooling pooling = !reads.is_bag()             ? model::Pooling::kOne
                                   : feature.pooling == "mean" ? model::Pooling::kMean
                                                               : model::Pooling::kSum;
    model::Feature rows = {.name = feature.name,
                           .table = tables.add(feature, reads),
                           .pooling = pooling,
                           .most_ids = reads.is_bag() ? feature.most : 1,
                           .least_events = feature.least};
    TGR_CHECK(feature.least == 0 || !item, "[features.", feature.name, "]: least = ", feature.least,
              " is for prefix features, and this is an item's; leave it out");
    // The id comes first.
    const bool id = item && feature.from == "item";
    auto& reading = item ? setup.layout.items : setup.layout.prefix;
    auto& model_features = item ? setup.features.items : setup.features.prefix;
    reading.insert(id ? reading.begin() : reading.end(), std::move(reads));
    model_features.insert(id ? model_features.begin() : model_features.end(), std::move(rows));
  }
  TGR_CHECK(!setup.layout.items.empty() && setup.layout.items[0].keys[0].text == "item",
            "no feature reads the item itself; add [features.item] from = \"item\"");
  tables.finish();
  add_tasks(config, store, setup);
  std::vector<std::string> actions = config.samples.actions;
  if (actions.empty()) actions = store.manifest().signals;
  for (const std::string& action : actions) {
    setup.layout.action_bits.push_back(store.signal_bit(action));
  }
  return setup;
}

std::string saved_table_name(const std::string& table) { return "table_" + table; }

model::RankingOptions ranking_options(const Config& config, const RankingSetup& setup,
                                      std::int64_t most_targets) {
  const ModelConfig& m = config.model;
  const auto prefix = std::ssize(setup.features.prefix);
  return {.embedding = m.embedding,
          .prefix = prefix,
          .item_features = std::ssize(setup.features.items),
          .actions = std::max<std::int64_t>(1, std::ssize(setup.layout.action_bits)),
          .action_scale = m.action_scale,
          .tasks = std::ssize(setup.layout.tasks),
          .layers = m.layers,
          .width = m.width,
          .heads = static_cast<int>(m.heads),
          .dq = m.dq,
          .dv = m.dv,
          .hidden = m.hidden,
          .head_hidden = m.head_hidden,
          .positions = m.positions,
          .time_buckets = m.time_buckets,
          .max_length = prefix + config.data.max_length + most_targets,
          .norm_length = static_cast<double>(m.norm_length),
          .full_prefix = m.prefix_mask == "full",
          .input_dropout = m.input_dropout,
          .dropout = m.dropout};
}

void RankingBounds::include(const data::SampleLoader& loader) {
  samples = std::max(samples, loader.max_batch_samples());
  tokens = std::max(tokens, loader.max_batch_tokens());
  targets = std::max(targets, loader.max_batch_targets());
  most_targets = std::max(most_targets, loader.samples().most_targets());
}

train::RankingTrainOptions ranking_train_options(const Config& config, const RankingSetup& setup,
                                                 const RankingBounds& bounds) {
  train::RankingTrainOptions options;
  options.model = ranking_options(config, setup, bounds.most_targets);
  options.memory = {.layers = {.capacity = bounds.tokens,
                               .sequences = bounds.samples,
                               .recompute = config.train.recompute,
                               .deterministic = config.train.deterministic},
                    .targets = bounds.targets};
  options.features = setup.features;
  options.dense.rate = config.optim.lr;
  options.dense.beta1 = config.optim.beta1;
  options.dense.beta2 = config.optim.beta2;
  options.dense.epsilon = config.optim.eps;
  options.dense.decay = config.optim.weight_decay;
  options.table.rate = config.embedding.lr;
  options.table.beta1 = config.embedding.beta1;
  options.table.beta2 = config.embedding.beta2;
  options.table.epsilon = config.embedding.eps;
  options.table.decay = config.embedding.weight_decay;
  options.table.epsilon_outside = config.embedding.eps_place != "inside";
  options.warmup_steps = config.optim.warmup;
  options.clip = config.optim.clip;
  options.loss_scale = config.train.loss_scale;
  options.regression = setup.regression;
  options.task_weights = setup.task_weights;
  options.norm_by_batch = config.model.normaliser == "batch";
  options.bucket_bytes = config.dist.bucket;
  options.seed = static_cast<std::uint64_t>(config.run.seed);
  return options;
}

data::SampleOptions sample_options(const Config& config, data::Split split) {
  const SamplesConfig& samples = config.samples;
  data::SampleOptions options;
  options.holdout = data::Holdout(config.data.holdout);
  options.split = split;
  options.builder = data::sample_builder_from_name(samples.builder);
  options.targets = samples.targets;
  options.max_history = config.data.max_length;
  options.history_before_split = config.samples.history == "split";
  if (split == data::Split::kTrain && samples.order == "time") {
    options.order = data::SampleOrder::kTime;
    options.window_seconds = samples.window;
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
  }
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
  options.queue.plan.budget = data::BatchBudget::samples(samples);
  return options;
}

}  // namespace turbogr::run
