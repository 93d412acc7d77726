#include "turbogr/run/task_defaults.h"

#include <algorithm>
#include <iterator>

#include "turbogr/core/check.h"
#include "turbogr/run/config_keys.h"

namespace turbogr::run {
namespace {

struct TaskDefault {
  std::string_view key;
  ConfigValue value;
};

const TaskDefault kRankingDefaults[] = {
    {"data.max_length", std::int64_t{64}},
    {"model.width", std::int64_t{32}},
    {"model.dropout", 0.1},
    {"optim.beta1", 0.95},
    {"optim.beta2", 0.999},
    {"optim.clip", 1.0},
    {"optim.warmup", std::int64_t{200}},
    {"embedding.optimiser", std::string("adagrad")},
    {"embedding.lr", 0.1},
    {"eval.metric", std::string("auc")},
};

}  // namespace

void choose_for_task(Config& config, const NamedKeys& named) {
  if (!config.ranks()) return;
  for (const TaskDefault& wanted : kRankingDefaults) {
    if (named.find(wanted.key) != named.end()) continue;
    const auto& keys = config_keys();
    const auto key = std::find_if(keys.begin(), keys.end(),
                                  [&](const ConfigKey& known) { return known.name == wanted.key; });
    TGR_ASSERT(key != keys.end());
    key->set(config, wanted.value);
  }
}

std::string ranking_default(std::string_view key) {
  const auto found = std::find_if(std::begin(kRankingDefaults), std::end(kRankingDefaults),
                                  [&](const TaskDefault& wanted) { return wanted.key == key; });
  return found == std::end(kRankingDefaults) ? "" : config_value_text(found->value);
}

}  // namespace turbogr::run
