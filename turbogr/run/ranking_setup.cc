#include "turbogr/run/ranking_setup.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/nearest_name.h"
#include "turbogr/data/samples/past_rates.h"
#include "turbogr/run/run_options.h"

namespace turbogr::run {
namespace {

// By its name alone: what depends on the item or the event belongs to every one of them. So does a
// rate, which another event has another of.
bool on_item(const FeatureConfig& feature) {
  if (feature.place != "auto") return feature.place == "item";
  if (!feature.rate.empty()) return true;
  const auto of_event = [](const std::string& source) {
    return source == "item" || source.starts_with("item.") || source.starts_with("event.");
  };
  return of_event(feature.from) ||
         std::any_of(feature.cross.begin(), feature.cross.end(), of_event);
}

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
      labels.weight = data::LabelWeight(store, task.where, task.weight_by);
    } catch (const Error& error) {
      detail::throw_error(where, error.what());
    }
    setup.layout.tasks.push_back(std::move(labels));
    setup.regression.push_back(task.number.empty() ? 0 : 1);
    setup.task_weights.push_back(task.weight);
  }
}

void add_tables(const FeatureTables& tables, RankingSetup& setup) {
  setup.tables = tables.finish();
  setup.table_names = tables.names();
  setup.named_rows = tables.named_rows();
  setup.features.table_rows = tables.rows();
}

void check_has_item(const RankingSetup& setup, const std::string& first) {
  TGR_CHECK(!setup.features.items.empty() && first == "item",
            "no feature reads the item itself; add [features.item] from = \"item\"");
}

bool is_item_id(const FeatureConfig& feature) {
  return feature.from == "item" && feature.rate.empty();
}

// Puts the feature in its place, the item's id first.
template <class Feature>
void place_feature(const FeatureConfig& feature, Feature placed, std::vector<Feature>& prefix,
                   std::vector<Feature>& items) {
  auto& list = on_item(feature) ? items : prefix;
  const bool id = on_item(feature) && is_item_id(feature);
  list.insert(id ? list.begin() : list.end(), std::move(placed));
}

// The signal of that name, or a task's signals.
std::uint32_t rate_signals(const FeatureConfig& feature, const RankingSetup& setup,
                           const data::Store& store) {
  std::vector<std::string> known = store.manifest().signals;
  const bool is_signal = std::find(known.begin(), known.end(), feature.rate) != known.end();
  const std::uint32_t signal = is_signal ? 1u << store.signal_bit(feature.rate) : 0;
  for (const data::SampleTask& task : setup.layout.tasks) {
    if (task.is_number()) continue;
    if (task.name == feature.rate) {
      TGR_CHECK(!is_signal || task.signals == signal, "[features.", feature.name, "]: rate = \"",
                feature.rate,
                "\" is a signal of the store and a task of other signals; give [tasks.", task.name,
                "] another name");
      return task.signals;
    }
    known.push_back(task.name);
  }
  if (is_signal) return signal;
  const std::string nearest = nearest_name(feature.rate, known);
  std::string list;
  for (const std::string& name : known) {
    if (list.find(name) == std::string::npos) list += (list.empty() ? "" : ", ") + name;
  }
  detail::throw_error(
      "[features.", feature.name, "]: there is no task or signal '", feature.rate, "' to count; ",
      nearest.empty() ? "" : "the nearest is '" + nearest + "', and ", "there are: ", list);
}

// Reads the store's events, so it comes last.
void add_rates(const Config& config, const data::Store& store, RankingSetup& setup) {
  std::optional<data::EventOrder> order;
  const auto add = [&](std::vector<data::SampleFeature>& features) {
    for (data::SampleFeature& reads : features) {
      const auto feature =
          std::find_if(config.features.begin(), config.features.end(),
                       [&](const FeatureConfig& each) { return each.name == reads.name; });
      if (feature->rate.empty()) continue;
      const std::uint32_t signals = rate_signals(*feature, setup, store);
      if (!order) {
        order.emplace(store, data::Holdout(config.data.holdout), config.samples.targets,
                      config.samples.history == "split");
      }
      reads.rates =
          std::make_shared<data::PastRates>(store, *order,
                                            data::PastRateOptions{.keys = reads.keys,
                                                                  .signals = signals,
                                                                  .prior = feature->prior,
                                                                  .delay = feature->delay});
    }
  };
  add(setup.layout.prefix);
  add(setup.layout.items);
}

// After the rates.
void add_bases(const Config& config, RankingSetup& setup) {
  std::map<std::string, std::shared_ptr<const data::PastRates>> rates;
  std::vector<std::string> known;
  for (const auto* features : {&setup.layout.prefix, &setup.layout.items}) {
    for (const data::SampleFeature& feature : *features) {
      if (!feature.rates) continue;
      rates[feature.name] = feature.rates;
      known.push_back(feature.name);
    }
  }
  for (std::size_t k = 0; k < config.tasks.size(); ++k) {
    const TaskConfig& task = config.tasks[k];
    const std::string where = "[tasks." + task.name + "]: ";
    TGR_CHECK(task.base.empty() || task.number.empty(), where,
              "base is for logits, and the task predicts a number; leave it out");
    for (const std::string& name : task.base) {
      const auto found = rates.find(name);
      if (found == rates.end()) {
        const std::string nearest = nearest_name(name, known);
        detail::throw_error(where, "base names '", name, "', which is no feature with a rate; ",
                            nearest.empty() ? "add one, as in [features.item_likes] from = "
                                              "\"item\", rate = \"is_like\""
                                            : "did you mean '" + nearest + "'?");
      }
      setup.layout.tasks[k].base.push_back(found->second);
    }
  }
}

}  // namespace

RankingSetup ranking_setup(const Config& config, const data::Store& store) {
  const ModelConfig& m = config.model;
  TGR_CHECK(m.kind != "fuxi" || (m.bias != "time" && m.bias != "both") || store.has_times(),
            "model.bias is \"", m.bias, "\" but the store '", store.folder().string(),
            "' has no times (order only); use model.bias = \"position\" or \"none\"");
  RankingSetup setup;
  FeatureTables tables(config, config.model.embedding, "model.embedding");
  for (const FeatureConfig& feature : config.features) {
    data::SampleFeature reads = sample_feature(config, feature, store);
    const std::size_t table = tables.add(feature, reads.is_cross() ? 0 : reads.rows());
    TGR_CHECK(feature.least == 0 || !on_item(feature), "[features.", feature.name,
              "]: least = ", feature.least,
              " is for prefix features, and this is an item's; leave it out");
    place_feature(feature, model_feature(feature, reads, table), setup.features.prefix,
                  setup.features.items);
    place_feature(feature, std::move(reads), setup.layout.prefix, setup.layout.items);
  }
  check_has_item(setup, setup.layout.items.empty() || setup.layout.items[0].scale
                            ? ""
                            : setup.layout.items[0].keys[0].text);
  add_tables(tables, setup);
  // The rows of a table are known when all its features are.
  const auto fill_crosses = [&](std::vector<data::SampleFeature>& reading,
                                const std::vector<model::Feature>& features) {
    for (std::size_t f = 0; f < reading.size(); ++f) {
      if (reading[f].is_cross()) reading[f].cross_rows = tables.rows()[features[f].table];
    }
  };
  fill_crosses(setup.layout.prefix, setup.features.prefix);
  fill_crosses(setup.layout.items, setup.features.items);
  add_tasks(config, store, setup);
  std::vector<std::string> actions = config.samples.actions;
  if (actions.empty()) actions = store.manifest().signals;
  for (const std::string& action : actions) {
    setup.layout.action_bits.push_back(store.signal_bit(action));
  }
  add_rates(config, store, setup);
  add_bases(config, setup);
  return setup;
}

RankingSetup ranking_shape(const Config& config) {
  RankingSetup setup;
  FeatureTables tables(config, config.model.embedding, "model.embedding");
  std::string first;
  for (const FeatureConfig& feature : config.features) {
    const std::size_t table = tables.add(feature, 0);
    TGR_CHECK(tables.named_rows()[table] > 0, "[features.", feature.name,
              "]: without a store a table's rows must be named, as in [tables.",
              tables.names()[table], "] rows = 100000");
    place_feature(
        feature,
        model::Feature{.name = feature.name, .table = table, .least_events = feature.least},
        setup.features.prefix, setup.features.items);
    if (is_item_id(feature)) first = "item";
  }
  check_has_item(setup, first);
  add_tables(tables, setup);
  for (const TaskConfig& task : config.tasks) {
    setup.layout.tasks.push_back({.name = task.name, .number = task.number});
    setup.regression.push_back(task.number.empty() ? 0 : 1);
    setup.task_weights.push_back(task.weight);
  }
  for (std::size_t a = 0; a < config.samples.actions.size(); ++a) {
    setup.layout.action_bits.push_back(static_cast<int>(a));
  }
  return setup;
}

model::RankingOptions ranking_options(const Config& config, const RankingSetup& setup,
                                      std::int64_t most_targets) {
  const ModelConfig& m = config.model;
  const auto prefix = std::ssize(setup.features.prefix);
  const auto& tasks = config.tasks;
  const bool bases = std::any_of(tasks.begin(), tasks.end(),
                                 [](const TaskConfig& task) { return !task.base.empty(); });
  return {
      .embedding = m.embedding,
      .prefix = prefix,
      .item_features = std::ssize(setup.features.items),
      .actions = std::max<std::int64_t>(1, std::ssize(setup.layout.action_bits)),
      .action_scale = m.action_scale,
      .tasks = std::ssize(setup.layout.tasks),
      .kind = model::model_kind_from_name(m.kind),
      .layers = m.layers,
      .width = m.width,
      .heads = static_cast<int>(m.heads),
      .dq = m.dq,
      .dv = m.dv,
      .feed_forward = feed_forward_width(m),
      .maps = model::bias_kind_from_name(m.bias),
      .hidden = m.hidden,
      .head_hidden = m.head_hidden,
      .positions = m.positions,
      .time_buckets = m.time_buckets,
      .buckets = m.time_bucket == "log" ? ops::TimeBuckets::kLog : ops::TimeBuckets::kSquareRoot,
      .post = model::post_kind_from_name(m.post),
      .max_length = prefix + config.data.max_length + most_targets,
      .max_history = config.data.max_length,
      .norm_length = static_cast<double>(m.norm_length),
      .full_prefix = m.prefix_mask == "full",
      .norm_heads = m.norm_heads,
      .bases = bases,
      .input_dropout = m.input_dropout,
      .dropout = m.dropout};
}

void RankingBounds::include(const data::SampleLoader& loader) {
  samples = std::max(samples, loader.max_batch_samples());
  tokens = std::max(tokens, loader.max_batch_tokens());
  targets = std::max(targets, loader.max_batch_targets());
  most_targets = std::max(most_targets, loader.samples().most_targets());
  for (const data::Window& window : loader.samples().windows) {
    most_tokens = std::max<std::int64_t>(most_tokens, window.length);
  }
}

RankingBounds RankingBounds::part(std::int64_t parts) const {
  const auto share = [&](std::int64_t all, std::int64_t least) {
    return std::max(least, (all + parts - 1) / parts);
  };
  return {.samples = share(samples, 1),
          .tokens = share(tokens, most_tokens),
          .targets = share(targets, most_targets),
          .most_tokens = most_tokens,
          .most_targets = most_targets};
}

train::RankingTrainOptions ranking_train_options(const Config& config, const RankingSetup& setup,
                                                 const RankingBounds& bounds,
                                                 std::int64_t total_steps) {
  train::RankingTrainOptions options;
  options.model = ranking_options(config, setup, bounds.most_targets);
  TGR_CHECK(config.train.device != "cuda" || bounds.most_targets <= 1 ||
                !model::layer_options(options.model).position_bias(),
            "FuXi's position map has no GPU kernels yet for samples of several targets, and there "
            "are samples of ",
            bounds.most_targets,
            "; use train.device = \"cpu\", samples of one target or model.bias = \"time\"");
  options.memory = {.layers = {.capacity = bounds.tokens,
                               .sequences = bounds.samples,
                               .recompute = config.train.recompute,
                               .deterministic = config.train.deterministic},
                    .targets = bounds.targets};
  options.batch = model::size_of(options.memory);
  options.features = setup.features;
  options.tables = setup.tables;
  options.table_memory = table_memory(config);
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
  options.table.decay_in_gradient = config.embedding.decay == "l2";
  options.table.epsilon_outside = config.embedding.eps_place != "inside";
  options.schedule = {.kind = optim::schedule_from_name(config.optim.schedule),
                      .warmup_steps = config.optim.warmup,
                      .total_steps = total_steps,
                      .floor = config.optim.final_lr,
                      .warmup_from_zero = true};
  options.clip = config.optim.clip;
  options.loss_scale = config.train.loss_scale;
  options.regression = setup.regression;
  options.task_weights = setup.task_weights;
  options.norm_by_batch = config.model.normaliser == "batch";
  options.seed = static_cast<std::uint64_t>(config.run.seed);
  return options;
}

}  // namespace turbogr::run
