// `turbogr eval`: ranking quality of a checkpoint on the held-out splits of a store. Several ranks
// share the users.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/data/store.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/train/evaluate.h"
#include "turbogr/train/file.h"
#include "turbogr/train/popularity.h"
#include "turbogr/train/run_options.h"
#include "turbogr/train/trained_model.h"

namespace turbogr::apps {
namespace {

struct EvalOptions {
  std::string checkpoint;
  std::string store;
  std::string split = "all";
  std::vector<std::int64_t> at = {10, 50, 200};
  std::string json;
  int threads = 0;
  bool popularity = true;
  bool untrained = false;
};

void run_eval(const EvalOptions& options, dist::Communicator& world) {
  const bool leads = world.rank() == 0;
  if (!leads) log::set_up("error");  // rank 0 speaks for all
  for (const std::int64_t k : options.at) {
    TGR_CHECK(k >= 1, "--at ", k, "; K of HR@K and NDCG@K is at least 1");
  }
  const Checkpoint checkpoint = train::open_checkpoint(options.checkpoint);
  const Config config = parse_config(checkpoint.config(), checkpoint.folder() + "/config.toml");
  const data::Store store = train::open_store(config, options.store);
  const train::Share share = {world.rank(), world.size()};
  const int threads = train::threads_for_rank(options.threads, world);
  train::device_for_rank(config, world);
  train::TrainedModel model(checkpoint, store, threads);
  TGR_CHECK(options.split == "all" || options.split == "validation" || options.split == "test",
            "unknown split '", options.split, "'; use validation, test or all");
  std::vector<data::Split> splits;
  const bool has_validation = config.data.holdout == "validation_test";
  if (options.split == "validation" || (options.split == "all" && has_validation)) {
    splits.push_back(data::Split::kValidation);
  }
  if (options.split != "validation") splits.push_back(data::Split::kTest);

  if (leads) {
    fmt::print("{} (step {}), store {}, every item of {} ranked\n", checkpoint.folder(),
               checkpoint.step(), store.folder().string(), store.num_items());
  }
  nlohmann::json rows = nlohmann::json::array();
  const auto report = [&](const char* ranking, data::Split split, train::RankingMetrics metrics) {
    metrics.add_up(world);
    if (!leads) return metrics;
    fmt::print("{:<11} {:<10}", name_of(split), ranking);
    nlohmann::json row = {
        {"split", name_of(split)}, {"ranking", ranking}, {"step", checkpoint.step()}};
    for (const auto& [name, value] : metrics.figures()) {
      fmt::print("  {} {:.4f}", name, value);
      row[name] = value;
    }
    fmt::print("\n");
    rows.push_back(row);
    return metrics;
  };
  for (const data::Split split : splits) {
    const train::RankingMetrics own =
        report("model", split, model.evaluate(split, options.at, share));
    if (options.untrained) {
      train::TrainedModel fresh(checkpoint, store, threads, train::TrainedModel::Weights::kFresh);
      report("untrained", split, fresh.evaluate(split, options.at, share));
    }
    if (options.popularity) {
      data::Loader loader(store, train::eval_loader_options(config, store, split, 16384, share));
      const Context ctx({.threads = 1});
      const train::RankingMetrics popularity =
          report("popularity", split,
                 train::evaluate_popularity(ctx, loader, train::item_popularity(config, store),
                                            options.at));
      const std::string warning =
          train::below_popularity(name_of(split), own, popularity, config.eval.metric);
      if (leads && !warning.empty()) log::warn("{}", warning);
    }
  }
  if (leads && !options.json.empty()) {
    replace_file(options.json, rows.dump(1) + "\n");
  }
}

}  // namespace

void add_eval(Command& app) {
  auto options = std::make_shared<EvalOptions>();
  Command* command = app.add_subcommand("eval", "Rank held-out items over the whole catalogue");
  command
      ->add_option("--checkpoint", options->checkpoint,
                   "Run folder (its best, or newest where none is kept), checkpoint, or "
                   "RUN/checkpoints/latest")
      ->required();
  command->add_option("--store", options->store, "Store; default: the one it was trained on");
  command->add_option("--split", options->split, "validation, test or all")->capture_default_str();
  command->add_option("--at", options->at, "K of HR@K and NDCG@K")
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--threads", options->threads, "Threads a rank; 0: cores / ranks of the machine")
      ->capture_default_str();
  command->add_flag("--popularity,!--no-popularity", options->popularity,
                    "Also rank by popularity, to compare (the default)");
  command->add_flag("--untrained", options->untrained, "Also rank with fresh weights, to compare");
  command->add_option("--json", options->json, "Also write the figures to this file");
  command->callback([options] {
    dist::run_as_launched([&](dist::Communicator& world) { run_eval(*options, world); });
  });
}

}  // namespace turbogr::apps
