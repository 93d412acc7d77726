#include "turbogr/run/combinations.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "turbogr/core/check.h"

namespace turbogr::run {
namespace {

struct Rule {
  bool broken;
  std::string found;
  std::string because;  // goes on after what was found
  std::string instead;  // what to do
};

std::string set(std::string_view key, std::string_view value) {
  return fmt::format("{} = \"{}\"", key, value);
}

// The tables in 16 bits: the key that gave each its format, and that.
std::vector<std::pair<std::string, std::string>> half_tables(const Config& config) {
  std::vector<std::pair<std::string, std::string>> formats = {
      {"embedding.dtype", config.embedding.dtype}};
  for (const TableConfig& table : config.tables) {
    if (!table.dtype.empty()) formats.emplace_back("tables." + table.name + ".dtype", table.dtype);
  }
  std::erase_if(formats, [](const auto& format) { return format.second == "f32"; });
  return formats;
}

// The key that lets some table have AdamW; none: none has.
std::string adamw_key(const Config& config) {
  for (const TableConfig& table : config.tables) {
    if (table.optimiser == "adamw") return "tables." + table.name + ".optimiser";
  }
  return config.embedding.optimiser == "adamw" ? "embedding.optimiser" : "";
}

std::vector<Rule> rules(const Config& config, const RunLayout& layout) {
  const EmbeddingConfig& embedding = config.embedding;
  const DistConfig& dist = config.dist;
  const TrainConfig& train = config.train;
  const bool gpu = train.device == "cuda";
  const bool in_host_memory = embedding.memory == "host";
  const bool averaged = dist.replicas == "average";
  const bool several = layout.world > 1;
  const bool ahead = train.schedule == "exact_prefetch" || train.schedule == "semi_async";
  std::vector<Rule> rules = {
      {in_host_memory && !gpu, set("embedding.memory", "host"),
       " keeps a GPU's item table in the host's memory, where " +
           set("train.device", train.device) + " has it anyway",
       "leave it out, or train on cuda"},
      {embedding.dtype != "f32" && config.negatives.dtype != "full",
       set("negatives.dtype", config.negatives.dtype),
       " halves what a table in f32 sends, and embedding.dtype is \"" + embedding.dtype + '"',
       "use one of the two"},
      {config.negatives.half_table && several, "negatives.half_table",
       " keeps an f16 copy of a table that one rank holds", "leave it out where several share it"},
      {averaged && ahead, set("train.schedule", train.schedule),
       " fetches rows ahead, which would miss that " + set("dist.replicas", "average") +
           " changes every row now and then",
       "use dist.replicas = \"exact\", or train.schedule = \"serial\" or \"overlap\""},
      {dist.rows == "f16" && gpu && several, set("dist.rows", dist.rows),
       " with train.device = \"cuda\": GPUs send rows as f32 or bf16", "use \"f32\" or \"bf16\""},
      {embedding.decay == "l2" && !adamw_key(config).empty(),
       set("embedding.decay", embedding.decay),
       " adds the decay to AdaGrad's gradients, and " + set(adamw_key(config), "adamw"),
       "use adagrad, or embedding.decay = \"decoupled\""},
      {embedding.decay == "l2" && averaged, set("embedding.decay", embedding.decay),
       " puts the decay beside gradients that " + set("dist.replicas", "average") +
           " scales otherwise than a mean over all",
       "use dist.replicas = \"exact\", or embedding.decay = \"decoupled\""},
      {dist.link != "auto" && !gpu, set("dist.link", dist.link),
       " says how GPUs reach each other, and train.device is \"" + train.device + '"',
       "leave it out, or train on cuda"},
  };
  for (const auto& [key, dtype] : half_tables(config)) {
    rules.push_back({in_host_memory, set(key, dtype),
                     " halves a table on the device, and embedding.memory = \"host\" keeps it off",
                     "use " + set(key, "f32") + ", or embedding.memory = \"device\""});
    rules.push_back({averaged && layout.sharded, set(key, dtype),
                     ", and dist.replicas = \"average\": the mean of rows in 16 bits would lose "
                     "what each group has learnt",
                     "use dist.replicas = \"exact\", or " + set(key, "f32")});
  }
  return rules;
}

}  // namespace

void check_combinations(const Config& config, const RunLayout& layout) {
  for (const Rule& rule : rules(config, layout)) {
    TGR_CHECK(!rule.broken, rule.found, rule.because, "; ", rule.instead);
  }
}

}  // namespace turbogr::run
