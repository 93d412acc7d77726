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

// By its name alone: what depends on the item or the event belongs to every one of them.
bool on_item(const FeatureConfig& feature) {
  if (feature.place != "auto") return feature.place == "item";
  const auto of_event = [](const std::string& source) {
    return source == "item" || source.starts_with("item.") || source.starts_with("event.");
  };
  return of_event(feature.from) ||
         std::any_of(feature.cross.begin(), feature.cross.end(), of_event);
}

// Keys that the kind of feature does not read would be set in vain.
void check_keys_of_kind(const FeatureConfig& feature, const data::SampleFeature& reads,
                        const std::string& where) {
  static const FeatureConfig plain;
  const bool number = !reads.is_cross() && reads.keys[0].is_number();
  const auto check = [&](const char* key, bool set, bool read, const char* reader) {
    TGR_CHECK(!set || read, where, key, " is for ", reader, ", and ",
              reads.is_cross() ? "this is a cross" : "'" + feature.from + "' is none",
              "; leave it out");
  };
  check("pooling", feature.pooling != plain.pooling, reads.is_bag(), "bags");
  check("most", feature.most != plain.most, reads.is_bag(), "bags");
  check("edges", !feature.edges.empty(), number, "numbers");
  check("unit", feature.unit != plain.unit, number, "numbers");
  check("buckets", feature.buckets != plain.buckets, number, "numbers");
  TGR_CHECK(
      feature.edges.empty() || (feature.unit == plain.unit && feature.buckets == plain.buckets),
      where,
      "edges say where buckets begin, unit and buckets make them by powers of two; give one of "
      "the two");
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
  check_keys_of_kind(feature, reads, where);
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

constexpr std::int64_t kLeastCutRows = 128;

// Tables as the features fill them; `rows` of a cross's table must be named.
class Tables {
 public:
  Tables(const Config& config, RankingSetup& setup) : config_(config), setup_(setup) {}

  // `needed` rows for the codes that the feature reads. A cross needs none, and fills what it gets.
  std::size_t add(const FeatureConfig& feature, std::int64_t needed) {
    const std::string& name = feature.table.empty() ? feature.name : feature.table;
    const TableConfig* given = find_table(config_, name);
    const std::int64_t named = given == nullptr ? 0 : given->rows;
    const std::string where = "[features." + feature.name + "]: ";
    check_known(feature, name, given);
    TGR_CHECK(feature.cross.empty() || named > 0, where,
              "a cross is hashed into its table; say how large that is, as in [tables.", name,
              "] rows = 100000");
    TGR_CHECK(named == 0 || named >= needed, where, "it has ids up to ", needed - 1,
              ", and [tables.", name, "] has rows = ", named, "; give at least ", needed, ", or 0");
    const auto at = std::find(setup_.table_names.begin(), setup_.table_names.end(), name);
    const auto t = static_cast<std::size_t>(at - setup_.table_names.begin());
    if (at == setup_.table_names.end()) {
      setup_.table_names.push_back(name);
      setup_.named_rows.push_back(named);
      setup_.features.table_rows.push_back(cut(named));
    }
    std::int64_t& rows = setup_.features.table_rows[t];
    rows = std::max(rows, needed);
    return t;
  }

  std::int64_t rows(std::size_t table) const { return setup_.features.table_rows[table]; }

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
  std::int64_t cut(std::int64_t named) const {
    const std::int64_t cut = config_.embedding.cut;
    return cut == 1 ? named : std::min(named, std::max(kLeastCutRows, named / cut));
  }

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

void check_has_item(const RankingSetup& setup, const std::string& first) {
  TGR_CHECK(!setup.features.items.empty() && first == "item",
            "no feature reads the item itself; add [features.item] from = \"item\"");
}

// Puts the feature in its place, the item's id first.
template <class Feature>
void place_feature(const FeatureConfig& feature, Feature&& placed, std::vector<Feature>& prefix,
                   std::vector<Feature>& items) {
  auto& list = on_item(feature) ? items : prefix;
  const bool id = on_item(feature) && feature.from == "item";
  list.insert(id ? list.begin() : list.end(), std::move(placed));
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
    const model::Pooling pooling = !reads.is_bag()             ? model::Pooling::kOne
                                   : feature.pooling == "mean" ? model::Pooling::kMean
                                                               : model::Pooling::kSum;
    const std::size_t table = tables.add(feature, reads.is_cross() ? 0 : reads.rows());
    TGR_CHECK(feature.least == 0 || !on_item(feature), "[features.", feature.name,
              "]: least = ", feature.least,
              " is for prefix features, and this is an item's; leave it out");
    place_feature(feature,
                  model::Feature{.name = feature.name,
                                 .table = table,
                                 .pooling = pooling,
                                 .most_ids = reads.is_bag() ? feature.most : 1,
                                 .least_events = feature.least},
                  setup.features.prefix, setup.features.items);
    place_feature(feature, std::move(reads), setup.layout.prefix, setup.layout.items);
  }
  check_has_item(setup, setup.layout.items.empty() ? "" : setup.layout.items[0].keys[0].text);
  tables.finish();
  // The rows of a table are known when all its features are.
  const auto fill_crosses = [&](std::vector<data::SampleFeature>& reading,
                                const std::vector<model::Feature>& features) {
    for (std::size_t f = 0; f < reading.size(); ++f) {
      if (reading[f].is_cross()) reading[f].cross_rows = tables.rows(features[f].table);
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
  return setup;
}

RankingSetup ranking_shape(const Config& config) {
  RankingSetup setup;
  Tables tables(config, setup);
  std::string first;
  for (const FeatureConfig& feature : config.features) {
    const std::size_t table = tables.add(feature, 0);
    TGR_CHECK(setup.named_rows[table] > 0, "[features.", feature.name,
              "]: without a store a table's rows must be named, as in [tables.",
              setup.table_names[table], "] rows = 100000");
    place_feature(
        feature,
        model::Feature{.name = feature.name, .table = table, .least_events = feature.least},
        setup.features.prefix, setup.features.items);
    if (feature.from == "item") first = "item";
  }
  check_has_item(setup, first);
  tables.finish();
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

}  // namespace turbogr::run
