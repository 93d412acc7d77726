#include "turbogr/run/store_defaults.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <span>

#include "turbogr/data/holdout.h"

namespace turbogr::run {
namespace {

// Below so many events a model learns them by heart, and wants more dropout.
constexpr std::int64_t kFewEvents = 1'000'000;
// Stores of at least so many events get a larger model.
constexpr std::int64_t kMediumEvents = 5'000'000;
constexpr std::int64_t kLargeEvents = 100'000'000;
// A run sees about so many tokens unless patience ends it sooner.
constexpr std::int64_t kTokensOfARun = 200'000'000;
constexpr std::int64_t kFewestEpochs = 3;
constexpr std::int64_t kMostEpochs = 200;
constexpr std::int64_t kPatience = 5;
constexpr std::int64_t kStepsBetweenEvaluations = 100;
constexpr std::int64_t kManyUsers = 100'000;
constexpr std::int64_t kUsersOfAnEvaluation = 20'000;

// What a rule may look at: the config so far, with what rules above it have chosen.
struct Choice {
  Config& config;
  const NamedKeys& named;
  const StoreSize& size;

  bool is_named(std::string_view key) const { return named.find(key) != named.end(); }
  bool has_validation() const { return data::Holdout(config.data.holdout).has_validation(); }
  // The run's length is left open, so its end is found by evaluating.
  bool open_end() const {
    return !is_named("train.epochs") && config.train.steps == 0 && has_validation();
  }
  std::int64_t by_size(std::int64_t small, std::int64_t medium, std::int64_t large) const {
    return size.events < kMediumEvents ? small : size.events < kLargeEvents ? medium : large;
  }
};

struct Rule {
  std::string_view key;
  std::string_view how;
  bool (*choose)(Choice& choice);  // false: the value of config.h stays
};

bool choose_heads(Choice& choice) {
  const std::int64_t width = choice.config.model.width;
  std::int64_t heads = std::max<std::int64_t>(1, width / 32);
  while (width % heads != 0) --heads;
  choice.config.model.heads = heads;
  return true;
}

// Small stores want many small steps an epoch.
bool choose_batch(Choice& choice) {
  if (choice.is_named("train.tokens")) return false;
  const auto fair = static_cast<std::uint64_t>(std::max<std::int64_t>(1, choice.size.users / 32));
  choice.config.train.batch =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(std::bit_floor(fair)), 16, 128);
  return true;
}

bool choose_epochs(Choice& choice) {
  if (choice.config.train.steps > 0) {
    choice.config.train.epochs = 0;
    return true;
  }
  const bool all = choice.config.data.history == "windows";
  const std::int64_t tokens =
      std::max<std::int64_t>(1, all ? choice.size.events : choice.size.recent_events);
  choice.config.train.epochs = std::clamp(kTokensOfARun / tokens, kFewestEpochs, kMostEpochs);
  return true;
}

// All that is known of long histories, where the last events of each leave a tenth or more out.
bool choose_history(Choice& choice) {
  if (!choice.open_end() || 10 * choice.size.recent_events > 9 * choice.size.events) return false;
  choice.config.data.history = "windows";
  return true;
}

// Larger models take smaller steps.
double rate_for(const Choice& choice) { return choice.size.events < kMediumEvents ? 2e-3 : 1e-3; }

// Enough to tell a target from the many, and never more than half of a small catalogue.
bool choose_negatives(Choice& choice) {
  const std::int64_t items = choice.size.items;
  const std::int64_t count = items < 100'000 ? 128 : items < 1'000'000 ? 256 : 512;
  choice.config.negatives.count = std::clamp<std::int64_t>(items / 2, 1, count);
  return true;
}

bool choose_eval_every(Choice& choice) {
  if (!choice.open_end() && choice.config.train.patience == 0) return false;
  if (choice.config.eval.every_steps > 0) return false;
  const std::int64_t batch = choice.config.train.batch > 0 ? choice.config.train.batch : 128;
  const std::int64_t steps = std::max<std::int64_t>(1, choice.size.users / batch);
  choice.config.eval.every = std::max<std::int64_t>(1, kStepsBetweenEvaluations / steps);
  return true;
}

// In the order they are applied: a rule sees what those above it chose.
const Rule kRules[] = {
    {"run.dir", "runs/ and the name of the store's folder",
     [](Choice& choice) {
       choice.config.run.dir = "runs/" + choice.size.name;
       return true;
     }},
    {"data.history",
     "windows, where neither train.epochs nor train.steps is named and a tenth of the events or "
     "more is older than the last data.max_length of its user; else last",
     choose_history},
    {"model.layers", "2; 4 from 5 million events on, 8 from 100 million on",
     [](Choice& choice) {
       choice.config.model.layers = choice.by_size(2, 4, 8);
       return true;
     }},
    {"model.width", "64; 128 from 5 million events on, 256 from 100 million on",
     [](Choice& choice) {
       choice.config.model.width = choice.by_size(64, 128, 256);
       return true;
     }},
    {"model.heads", "one for each 32 of model.width", choose_heads},
    {"model.dropout", "0.4; 0.2 from 1 million events on",
     [](Choice& choice) {
       choice.config.model.dropout = choice.size.events < kFewEvents ? 0.4 : 0.2;
       return true;
     }},
    {"model.bias", "both; position for a store without times",
     [](Choice& choice) {
       choice.config.model.bias = choice.size.times ? "both" : "position";
       return true;
     }},
    {"model.features",
     "store, where neither train.epochs nor train.steps is named, no [features.X] is there and the "
     "store has features of items; else named",
     [](Choice& choice) {
       const Config& config = choice.config;
       const bool none = config.features.empty() && config.negatives.dtype == "full";
       if (!none || !choice.open_end() || !choice.size.item_features) return false;
       choice.config.model.features = "store";
       return true;
     }},
    {"train.batch",
     "a 32nd of the users, as a power of 2 from 16 to 128, unless train.tokens is named",
     choose_batch},
    {"train.epochs",
     "as many as see 200 million events, 3 to 200; train.patience ends most runs sooner; 0 where "
     "train.steps is named",
     choose_epochs},
    {"optim.lr", "0.002; 0.001 from 5 million events on",
     [](Choice& choice) {
       choice.config.optim.lr = rate_for(choice);
       return true;
     }},
    {"embedding.lr", "as optim.lr where embedding.optimiser is adamw; else 0.001",
     [](Choice& choice) {
       if (choice.config.embedding.optimiser != "adamw") return false;
       choice.config.embedding.lr = rate_for(choice);
       return true;
     }},
    {"negatives.count",
     "128; 256 from 100,000 items on, 512 from 1 million on; at most half of the items",
     choose_negatives},
    {"eval.every",
     "about 100 steps, where train.patience is above 0 or neither train.epochs nor train.steps is "
     "named",
     choose_eval_every},
    {"train.patience", "5, where neither train.epochs nor train.steps is named",
     [](Choice& choice) {
       const EvalConfig& eval = choice.config.eval;
       if (!choice.open_end() || (eval.every == 0 && eval.every_steps == 0)) return false;
       choice.config.train.patience = kPatience;
       return true;
     }},
    {"eval.max_users",
     "20,000 of more than 100,000 users, where neither train.epochs nor train.steps is named; else "
     "0",
     [](Choice& choice) {
       if (!choice.open_end() || choice.size.users <= kManyUsers) return false;
       choice.config.eval.max_users = kUsersOfAnEvaluation;
       return true;
     }},
    {"checkpoint.keep_best",
     "1 where train.patience is above 0 or neither train.epochs nor train.steps is named",
     [](Choice& choice) {
       const bool stops = choice.config.train.patience > 0 && choice.has_validation();
       if (!choice.open_end() && !stops) return false;
       choice.config.checkpoint.keep_best = 1;
       return true;
     }},
};

// Of the ranking task: what the published models have is in task_defaults.cc; here is what ends a
// run, and what the store's histories and the tasks allow.
const Rule kRankingRules[] = {
    kRules[0],  // run.dir
    {"samples.targets",
     "8; of blocks, a third of a user's mean events where those are fewer than 24 and neither "
     "train.epochs nor train.steps is named",
     [](Choice& choice) {
       if (!choice.open_end() || choice.config.samples.builder != "blocks") return false;
       const std::int64_t users = std::max<std::int64_t>(1, choice.size.users);
       const std::int64_t third = std::max<std::int64_t>(1, choice.size.events / (3 * users));
       if (third >= choice.config.samples.targets) return false;
       choice.config.samples.targets = third;
       return true;
     }},
    {"model.heads", "one for each 16 of model.width",
     [](Choice& choice) {
       const std::int64_t width = choice.config.model.width;
       std::int64_t heads = std::max<std::int64_t>(1, width / 16);
       while (width % heads != 0) --heads;
       choice.config.model.heads = heads;
       return true;
     }},
    {"model.bias", "FuXi's maps: both; position for a store without times",
     [](Choice& choice) {
       if (choice.config.model.kind != "fuxi") return false;
       choice.config.model.bias = choice.size.times ? "both" : "position";
       return true;
     }},
    {"train.epochs", "10, of which train.patience ends most; 0 where train.steps is named",
     [](Choice& choice) {
       choice.config.train.epochs = choice.config.train.steps > 0 ? 0 : choice.open_end() ? 10 : 1;
       return true;
     }},
    {"optim.warmup", "200, or a tenth of the run's steps where that is less",
     [](Choice& choice) {
       const TrainConfig& train = choice.config.train;
       const std::int64_t targets = std::max<std::int64_t>(1, choice.config.samples.targets);
       const std::int64_t batch = train.batch > 0 ? train.batch : 128;
       const std::int64_t steps =
           train.steps > 0 ? train.steps : train.epochs * choice.size.events / (targets * batch);
       if (steps / 10 >= choice.config.optim.warmup) return false;
       choice.config.optim.warmup = steps / 10;
       return true;
     }},
    {"eval.every", "1, where neither train.epochs nor train.steps is named",
     [](Choice& choice) {
       if (!choice.open_end() || choice.config.eval.every_steps > 0) return false;
       choice.config.eval.every = 1;
       return true;
     }},
    {"eval.metric", "auc; mse where every task predicts a number",
     [](Choice& choice) {
       const std::vector<TaskConfig>& tasks = choice.config.tasks;
       const bool numbers =
           !tasks.empty() && std::all_of(tasks.begin(), tasks.end(), [](const TaskConfig& task) {
             return !task.number.empty();
           });
       if (numbers) choice.config.eval.metric = "mse";
       return numbers;
     }},
    {"train.patience", "2, where neither train.epochs nor train.steps is named",
     [](Choice& choice) {
       if (!choice.open_end()) return false;
       choice.config.train.patience = 2;
       return true;
     }},
    {"checkpoint.keep_best", "1, where neither train.epochs nor train.steps is named",
     [](Choice& choice) {
       if (!choice.open_end()) return false;
       choice.config.checkpoint.keep_best = 1;
       return true;
     }},
};

std::span<const Rule> rules_of(std::string_view task) {
  return task == "ranking" ? std::span<const Rule>(kRankingRules) : std::span<const Rule>(kRules);
}

}  // namespace

StoreSize size_of(const data::Store& store, std::int64_t max_length) {
  std::int64_t recent = 0;
  const std::span<const std::int64_t> offsets = store.offsets();
  for (std::size_t user = 1; user < offsets.size(); ++user) {
    recent += std::min(offsets[user] - offsets[user - 1], max_length);
  }
  const auto& features = store.manifest().features;
  const std::filesystem::path folder = std::filesystem::absolute(store.folder()).lexically_normal();
  return {.name = (folder.has_filename() ? folder : folder.parent_path()).filename().string(),
          .users = store.num_users(),
          .items = store.num_items(),
          .events = store.num_events(),
          .recent_events = recent,
          .times = store.has_times(),
          .item_features = std::any_of(features.begin(), features.end(), [](const auto& feature) {
            return feature.owner == data::FeatureOwner::kItem;
          })};
}

bool leaves_to_the_store(Config config, const NamedKeys& named) {
  return !choose_for_store(config, named, {}).empty();
}

std::vector<std::string_view> choose_for_store(Config& config, const NamedKeys& named,
                                               const StoreSize& size) {
  Choice choice{config, named, size};
  std::vector<std::string_view> decided;
  for (const Rule& rule : rules_of(config.task)) {
    if (!choice.is_named(rule.key) && rule.choose(choice)) decided.push_back(rule.key);
  }
  return decided;
}

std::string_view how_chosen(std::string_view key, std::string_view task) {
  const std::span<const Rule> rules = rules_of(task);
  const auto found =
      std::find_if(rules.begin(), rules.end(), [&](const Rule& rule) { return rule.key == key; });
  return found == rules.end() ? std::string_view{} : found->how;
}

}  // namespace turbogr::run
