// `turbogr eval`: quality of a checkpoint on the held-out splits of a store. Several ranks
// share the users and the items.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/eval_ranking.h"
#include "apps/same_command.h"
#include "apps/user_progress.h"
#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/core/output_file.h"
#include "turbogr/core/progress.h"
#include "turbogr/data/holdout.h"
#include "turbogr/data/store.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/eval/evaluate.h"
#include "turbogr/eval/seen_items.h"
#include "turbogr/run/item_names.h"
#include "turbogr/run/popularity.h"
#include "turbogr/run/rank_cores.h"
#include "turbogr/run/run_options.h"
#include "turbogr/run/seen_rule.h"
#include "turbogr/run/trained_model.h"

namespace turbogr::apps {
namespace {

constexpr std::string_view kModel = "model";

struct EvalOptions {
  std::string checkpoint;
  std::string store;
  std::string split = "all";
  std::vector<std::int64_t> at = {10, 50, 200};
  std::string json;
  int threads = 0;
  bool popularity = true;
  bool untrained = false;
  std::string seen;
  std::string group;
};

std::int64_t users_of(data::Split split, const run::Config& config, const data::Store& store) {
  return std::ssize(data::make_windows(
      store, run::eval_loader_options(config, store, split, run::kTokensAtOnce).windows));
}

void run_eval(const EvalOptions& options, dist::Communicator& world) {
  const bool leads = world.rank() == 0;
  if (!leads) log::set_up("error");  // rank 0 speaks for all
  check_same_command(world, "eval", SameCommand::kWords);
  const checkpoint::Checkpoint checkpoint = run::open_checkpoint(world, options.checkpoint);
  const run::Config config =
      run::parse_config(checkpoint.config(), checkpoint.folder() + "/config.toml");
  const data::Store store = run::open_store(config, options.store);
  const run::Share share = {world.rank(), world.size()};
  const int threads = run::threads_for_rank(options.threads, run::rank_cores(world));
  run::device_for_rank(config, world);
  std::vector<data::Split> splits;
  const bool has_validation = data::Holdout(config.data.holdout).has_validation();
  if (options.split == "validation" || (options.split == "all" && has_validation)) {
    splits.push_back(data::Split::kValidation);
  }
  if (options.split != "validation") splits.push_back(data::Split::kTest);

  if (config.ranks()) {
    TGR_CHECK(options.seen.empty(),
              "--seen is for the retrieval task, and this checkpoint is of "
              "the ranking task; leave it out");
    return run_ranking_eval(
        checkpoint, store,
        {splits, threads, options.untrained, options.popularity, options.group, options.json},
        world);
  }
  TGR_CHECK(options.group.empty(),
            "--group is for the ranking task, and this checkpoint is of "
            "the retrieval task; leave it out");
  for (const std::int64_t k : options.at) {
    if (k < store.num_items()) continue;
    log::warn("--at {}: there are {} items to rank, so every target that is ranked is a hit", k,
              store.num_items());
  }
  const eval::SeenItems seen = run::seen_for(checkpoint, config, options.seen);
  run::TrainedModel model(checkpoint, store, threads, world);

  if (leads) {
    fmt::print("{} (step {}), store {}, every item of {} ranked, seen items {}\n",
               checkpoint.folder(), checkpoint.step(), store.folder().string(), store.num_items(),
               seen == eval::SeenItems::kDrop ? "dropped" : "kept");
    const std::vector<std::uint8_t> trained = run::trained_items(checkpoint, config, store);
    const auto untrained = std::count(trained.begin(), trained.end(), 0);
    if (untrained > 0) {
      fmt::print("{} of the items do not occur in training: ranked here, left out by recommend\n",
                 untrained);
    }
  }
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  const auto report = [&](std::string_view ranking, data::Split split, const auto& evaluate) {
    UserProgress progress(ranking, users_of(split, config, store) / world.size(),
                          leads ? UserProgress::Speaks::kYes : UserProgress::Speaks::kNo);
    eval::RankingMetrics metrics =
        evaluate({.cutoffs = options.at, .seen = seen, .progress = [&](std::int64_t users) {
                    progress.update(users);
                  }});
    progress.clear();
    metrics.add_up(world);
    if (!leads) return metrics;
    fmt::print("{:<11} {:<10}  {} users", name_of(split), ranking, grouped_text(metrics.users()));
    nlohmann::ordered_json row = {{"split", name_of(split)},   {"ranking", ranking},
                                  {"step", checkpoint.step()}, {"users", metrics.users()},
                                  {"seen", name_of(seen)},     {"repeats", metrics.repeat_share()}};
    for (const auto& [name, value] : metrics.figures()) {
      fmt::print("  {} {:.4f}", name, value);
      row[name] = value;
    }
    fmt::print("\n");
    // The targets are the same in every ranking of a split.
    if (ranking == kModel) fmt::print("{}", repeats_text(metrics, seen));
    rows.push_back(row);
    return metrics;
  };
  for (const data::Split split : splits) {
    const eval::RankingMetrics own = report(kModel, split, [&](const eval::EvaluateOptions& how) {
      return model.evaluate(split, how, share);
    });
    if (options.untrained) {
      run::TrainedModel fresh(checkpoint, store, threads, world,
                              run::TrainedModel::Weights::kFresh);
      report("untrained", split,
             [&](const eval::EvaluateOptions& how) { return fresh.evaluate(split, how, share); });
    }
    if (options.popularity) {
      data::Loader loader(
          store, run::eval_loader_options(config, store, split, run::kTokensAtOnce, share));
      const eval::RankingMetrics popularity =
          report("popularity", split, [&](const eval::EvaluateOptions& how) {
            return eval::evaluate_popularity(loader, run::item_popularity(config, store), how);
          });
      const std::string warning =
          run::below_popularity(name_of(split), own, popularity, config.eval.metric);
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
  Command* command = app.add_subcommand(
      "eval",
      "Rank held-out items over the whole catalogue, or judge held-out targets (ranking task)");
  command
      ->add_option("--checkpoint", options->checkpoint,
                   "Run folder (its best, or newest where none is kept), checkpoint, or "
                   "RUN/checkpoints/latest")
      ->required();
  command->add_option("--store", options->store, "Store; default: the one it was trained on");
  command->add_option("--split", options->split, "validation, test or all")
      ->check(is_one_of({"validation", "test", "all"}))
      ->capture_default_str();
  command->add_option("--at", options->at, "K of HR@K and NDCG@K")
      ->check(is_positive())
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--threads", options->threads, "Threads a rank; 0: cores / ranks of the machine")
      ->capture_default_str();
  command->add_flag("--popularity,!--no-popularity", options->popularity,
                    "Also rank by popularity, or judge by counts (ranking task), to compare (the "
                    "default)");
  command->add_flag("--untrained", options->untrained, "Also rank with fresh weights, to compare");
  command
      ->add_option("--seen", options->seen,
                   "drop or keep items the user has met; default: eval.seen of the run")
      ->check(is_one_of({"drop", "keep"}));
  command
      ->add_option("--group", options->group,
                   "GAUC by user or request (ranking task); default: eval.group of the run")
      ->check(is_one_of({"user", "request"}));
  command->add_option("--json", options->json, "Also write the figures to this file");
  command->callback([options] {
    dist::run_as_launched([&](dist::Communicator& world) { run_eval(*options, world); });
  });
}

}  // namespace turbogr::apps
