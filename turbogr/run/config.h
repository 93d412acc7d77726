// A run is one TOML file. It is parsed into these structs; the values beside the fields are the
// defaults, unless store_defaults.h chooses one from the store. A key that is not here, a value of
// the wrong type and a value out of range are errors that name the file, the line and what is
// wanted.
//
//   Config config = load_config("configs/demo.toml", {{"train.steps", "100"}});
//   for (int layer = 0; layer < config.model.layers; ++layer) ...
//
// A new key is a field here and its line in config_keys.cc, or in config_entries.cc where it is of
// a table, feature or task. What the ranking task wants otherwise is in task_defaults.cc.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace turbogr::run {

struct DataConfig {
  std::string store;
  std::string holdout = "validation_test";
  std::int64_t max_length = 200;
  std::string history = "last";
  bool shuffle = true;
  std::int64_t workers = 1;
  std::int64_t prefetch = 4;

  bool operator==(const DataConfig&) const = default;
};

struct SamplesConfig {
  std::string builder = "blocks";
  std::int64_t targets = 8;
  std::vector<std::string> actions;
  std::string history = "all";
  std::int64_t sort_batches = 0;
  std::string order = "user";
  std::int64_t window = 0;
  bool whole_batches = false;
  std::vector<std::string> anchor;
  std::int64_t least_history = 0;
  std::int64_t lookback = 20000;
  std::int64_t per_action = 1362;
  std::string target_time = "own";

  bool operator==(const SamplesConfig&) const = default;
};

struct ModelConfig {
  std::string kind = "hstu";
  std::int64_t layers = 2;
  std::int64_t width = 64;
  std::int64_t heads = 2;
  std::int64_t dq = 0;
  std::int64_t dv = 0;
  double ffn = 1.0;
  double dropout = 0.2;
  std::string bias = "both";
  std::string time_unit = "seconds";
  std::int64_t norm_length = 0;
  double alpha = 1.0;
  std::string silu = "all";
  bool affine = false;
  bool concat = false;
  bool norm_heads = false;
  std::int64_t window = 0;
  std::int64_t prefix = 0;
  std::int64_t targets = 0;
  bool actions = false;
  double temperature = 0.05;
  std::string output = "item";
  std::string features = "named";
  std::int64_t embedding = 16;
  std::int64_t hidden = 0;
  std::int64_t head_hidden = 0;
  std::int64_t positions = 8192;
  std::int64_t time_buckets = 2048;
  std::string time_bucket = "sqrt";
  double input_dropout = 0.2;
  double action_scale = 0.1;
  std::string prefix_mask = "causal";
  std::string post = "time";
  std::string normaliser = "length";

  bool operator==(const ModelConfig&) const = default;
};

struct TrainConfig {
  std::int64_t epochs = 1;
  std::int64_t steps = 0;
  std::int64_t patience = 0;
  std::int64_t batch = 0;
  std::int64_t tokens = 0;
  std::int64_t accumulate = 1;
  std::string device = "cpu";
  std::string schedule = "auto";
  std::int64_t delay = 1;
  std::int64_t sync_steps = 0;
  std::string dtype = "f32";
  std::string products = "dtype";
  std::int64_t threads = 0;
  bool recompute = false;
  bool deterministic = false;
  double peak_tflops = 0.0;
  std::int64_t max_bad_steps = 10;
  double loss_scale = 0.2;

  bool operator==(const TrainConfig&) const = default;
};

struct DistConfig {
  std::int64_t group = 0;
  bool spread = false;
  std::int64_t ranks_per_node = 0;
  std::string placement = "round_robin";
  std::string replicas = "exact";
  std::int64_t average_every = 1;
  std::string rows = "f32";
  std::string gradients = "f32";
  std::int64_t bucket = 1 << 20;
  bool balance = true;
  double timeout = 600.0;
  std::string link = "auto";
  std::int64_t world = 0;

  bool operator==(const DistConfig&) const = default;
};

struct OptimConfig {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.98;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool decay_vectors = false;
  double clip = 0.0;
  std::string schedule = "constant";
  std::int64_t warmup = 0;
  double final_lr = 0.0;

  bool operator==(const OptimConfig&) const = default;
};

struct EmbeddingConfig {
  std::string optimiser = "adamw";
  std::string memory = "device";
  double cache = 0.1;
  std::string dtype = "f32";
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.98;
  double eps = 1e-8;
  std::string eps_place = "auto";
  double weight_decay = 0.0;
  std::string decay = "decoupled";
  double init = 0.02;
  std::string start = "normal";
  std::int64_t cut = 1;

  bool operator==(const EmbeddingConfig&) const = default;
};

struct NegativesConfig {
  std::int64_t count = 128;
  std::string set = "token";
  std::string sampler = "uniform";
  double alpha = 0.75;
  std::vector<std::int64_t> mix;
  bool correction = true;
  std::string sharing = "none";
  std::int64_t sharing_factor = 1;
  std::string dtype = "full";
  bool half_table = false;
  bool untrained = true;

  bool operator==(const NegativesConfig&) const = default;
};

struct EvalConfig {
  std::int64_t every = 0;
  std::int64_t every_steps = 0;
  std::vector<std::int64_t> at = {10, 50, 200};
  std::string metric = "ndcg@10";
  std::string group = "user";
  std::int64_t max_users = 0;
  std::string seen = "auto";

  bool operator==(const EvalConfig&) const = default;
};

struct LogConfig {
  std::int64_t every = 50;
  std::string progress = "auto";
  bool tensorboard = true;

  bool operator==(const LogConfig&) const = default;
};

struct RunConfig {
  std::string dir;
  bool resume = false;
  bool start_over = false;
  std::string start_from;
  std::int64_t seed = 1;
  bool trace = false;
  bool mllog = false;
  bool dry_run = false;

  bool operator==(const RunConfig&) const = default;
};

struct CheckpointConfig {
  std::int64_t every = 0;
  std::int64_t every_epochs = 0;
  std::int64_t keep_last = 2;
  std::int64_t keep_best = 0;
  bool background = true;
  bool fall_back = false;

  bool operator==(const CheckpointConfig&) const = default;
};

// Tables and features, and the ranking task's own tasks, each under a name: [tables.tags],
// [features.tags], [tasks.click]. They keep the order of the file.

struct TableConfig {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::string dtype;  // empty: embedding.dtype
  std::string optimiser;
  double init = 0.0;

  bool operator==(const TableConfig&) const = default;
};

struct FeatureConfig {
  std::string name;
  std::string from;
  std::vector<std::string> cross;
  std::string table;
  std::string place = "auto";
  std::string pooling = "mean";
  std::int64_t most = 16;
  std::vector<double> edges;
  double unit = 1.0;
  std::int64_t buckets = 16;
  std::string number = "buckets";
  double mean = 0.0;
  double sd = 0.0;
  std::string rate;
  double prior = 20.0;
  std::int64_t delay = 0;
  std::int64_t least = 0;

  bool operator==(const FeatureConfig&) const = default;
};

struct TaskConfig {
  std::string name;
  std::vector<std::string> signals;
  std::string number;
  double weight = 1.0;
  std::vector<std::string> where;
  std::string weight_by;
  std::vector<std::string> base;

  bool operator==(const TaskConfig&) const = default;
};

struct Config {
  std::string task = "retrieval";
  DataConfig data;
  SamplesConfig samples;
  ModelConfig model;
  TrainConfig train;
  DistConfig dist;
  OptimConfig optim;
  EmbeddingConfig embedding;
  NegativesConfig negatives;
  EvalConfig eval;
  LogConfig log;
  RunConfig run;
  CheckpointConfig checkpoint;
  std::vector<TableConfig> tables;
  std::vector<FeatureConfig> features;
  std::vector<TaskConfig> tasks;

  bool ranks() const { return task == "ranking"; }
  bool operator==(const Config&) const = default;
};

struct Override {
  std::string key;    // "train.steps"
  std::string value;  // TOML without the quotes round a string: "100", "true", "cosine", "[10, 50]"
};

// What follows a subcommand that takes a config: a path, which may be absent, and overrides as
// --a.b=c or --a.b c.
struct ConfigArguments {
  std::string path;
  std::vector<Override> overrides;
};
ConfigArguments split_config_arguments(const std::vector<std::string>& arguments);

// Names of keys that a file or the command line gives a value.
using NamedKeys = std::set<std::string, std::less<>>;

struct LoadedConfig {
  Config config;
  std::vector<std::string> chosen;  // "model.layers = 2" for each key that the store decided
  std::string unread;  // why the store could not decide, where keys waited for it; else empty
};

// Reads, overrides, chooses from the store what is left open (store_defaults.h), fills in what
// other keys imply (model.dq, model.norm_length, ...) and checks. Without a path there is no file,
// and data.store must be named. A store that cannot be read leaves the values of config.h. Throws
// Error.
LoadedConfig load_config_for_store(const std::string& path,
                                   const std::vector<Override>& overrides = {});
Config load_config(const std::string& path, const std::vector<Override>& overrides = {});
// Looks at no store: what is not named has the value of config.h. `source` stands for the file's
// name in messages.
Config parse_config(std::string_view text, std::string_view source,
                    const std::vector<Override>& overrides = {});

// The complete TOML, every key of it; parse_config of the text gives the same Config.
std::string config_text(const Config& config);
// One line a key: name, default, help.
std::string config_help();

// "model.layers is 4, was 2" for each key that begins with `prefix` and differs: why a checkpoint
// does not fit a run.
std::vector<std::string> config_differences(const Config& was, const Config& is,
                                            std::string_view prefix);

}  // namespace turbogr::run
