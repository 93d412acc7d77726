#include "turbogr/run/idle_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/run/config_keys.h"

namespace turbogr::run {
namespace {

struct Reader {
  std::string_view key;
  bool there;             // somebody reads the key in this run
  bool refused;           // else named in a warning
  std::string_view what;  // who would read it
};

// Keys of the ranking task alone, beside [tasks.X].
constexpr std::string_view kOfRanking[] = {
    "embedding.cut",      "train.loss_scale",    "model.embedding",    "model.positions",
    "model.time_buckets", "model.input_dropout", "model.action_scale", "model.prefix_mask",
    "model.normaliser",   "model.time_bucket",   "model.post",         "eval.group",
};
constexpr std::string_view kRankingTask = "task = \"ranking\"";

// Keys of the retrieval task alone, beside negatives.*.
constexpr std::string_view kOfRetrieval[] = {
    "data.history",        "model.alpha",       "model.silu",     "model.affine",
    "model.concat",        "model.window",      "model.prefix",   "model.targets",
    "model.actions",       "model.temperature", "model.features", "model.time_unit",
    "optim.decay_vectors", "eval.at",           "eval.seen",
};
constexpr std::string_view kRetrievalTask = "task = \"retrieval\"";

bool of_ranking(std::string_view key) {
  return key.starts_with("samples.") ||
         std::find(std::begin(kOfRanking), std::end(kOfRanking), key) != std::end(kOfRanking);
}

std::vector<Reader> readers(const Config& config, const RunLayout& layout) {
  const bool late = config.train.schedule == "semi_async";
  const bool several = layout.world > 1;
  constexpr std::string_view kSeveral = "several ranks";
  constexpr std::string_view kPipeline = "several ranks, or another train.schedule than \"serial\"";
  std::vector<Reader> readers = {
      {"train.delay", late, true, "train.schedule = \"semi_async\""},
      {"train.sync_steps", late && config.train.delay > 0, true,
       "train.schedule = \"semi_async\" with train.delay = 1"},
      {"run.start_over", config.run.resume, true, "run.resume = true"},
      {"dist.average_every", config.dist.replicas == "average", true,
       "dist.replicas = \"average\""},
      {"dist.group", several || config.dist.group == 1, true,
       "more ranks, started with mpirun or srun"},
      {"dist.replicas", layout.groups > 1, false, "several groups of ranks"},
      {"dist.spread", layout.groups > 1 && layout.machines > 1, false,
       "several groups of ranks on several machines"},
      {"dist.ranks_per_node", several, false, kSeveral},
      {"dist.balance", several, false, kSeveral},
      {"dist.timeout", several, false, kSeveral},
      {"dist.placement", layout.sharded, false, kPipeline},
      {"dist.rows", layout.sharded, false, kPipeline},
      {"dist.gradients", layout.sharded, false, kPipeline},
      {"dist.bucket", layout.sharded, false, kPipeline},
      {"embedding.cache",
       config.embedding.memory == "host" && !layout.sharded && !config.ranks() &&
           config.negatives.dtype == "full" && config.features.empty(),
       false,
       "the retrieval task with embedding.memory = \"host\" on one rank, negatives of "
       "negatives.dtype = \"full\" and no features"},
      {"model.output", !config.features.empty() && !config.ranks(), false,
       "the retrieval task with features of items"},
      {"model.bias", !config.ranks() || config.model.kind == "fuxi", true,
       "task = \"retrieval\" or model.kind = \"fuxi\""},
      {"optim.final_lr", config.optim.schedule != "constant", false,
       "optim.schedule = \"cosine\" or \"linear\""},
  };
  for (const ConfigKey& key : config_keys()) {
    if (of_ranking(key.name)) readers.push_back({key.name, config.ranks(), true, kRankingTask});
    if (is_of_retrieval(key.name)) {
      readers.push_back({key.name, !config.ranks(), true, kRetrievalTask});
    }
  }
  return readers;
}

}  // namespace

bool is_of_retrieval(std::string_view key) {
  return key.starts_with("negatives.") ||
         std::find(std::begin(kOfRetrieval), std::end(kOfRetrieval), key) != std::end(kOfRetrieval);
}

std::string check_idle_keys(const Config& config, const RunLayout& layout) {
  static const Config defaults;
  TGR_CHECK(config.tasks.empty() || config.ranks(), "[tasks.",
            config.tasks.empty() ? "" : config.tasks[0].name, "] is for ", kRankingTask,
            "; use that, or leave it out");
  std::string idle;
  for (const Reader& reader : readers(config, layout)) {
    if (reader.there) continue;
    const auto& keys = config_keys();
    const auto key = std::find_if(keys.begin(), keys.end(),
                                  [&](const ConfigKey& known) { return known.name == reader.key; });
    TGR_ASSERT(key != keys.end());
    const ConfigValue value = key->get(config);
    if (value == key->get(defaults)) continue;
    const std::string set = fmt::format("{} = {}", reader.key, config_value_text(value));
    TGR_CHECK(!reader.refused, set, " is for ", reader.what, "; use that, or leave ", reader.key,
              " out");
    idle += fmt::format("{}{} (for {})", idle.empty() ? "" : ", ", set, reader.what);
  }
  return idle.empty() ? "" : "nothing in this run reads " + idle;
}

}  // namespace turbogr::run
