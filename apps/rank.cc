// `turbogr rank`: how a ranking model judges items for a user, task by task.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/score_writer.h"
#include "turbogr/core/check.h"
#include "turbogr/data/interrupt.h"
#include "turbogr/data/item_titles.h"
#include "turbogr/data/store.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/run/rank_cores.h"
#include "turbogr/run/rank_requests.h"
#include "turbogr/run/recommend_inputs.h"
#include "turbogr/run/trained_model.h"
#include "turbogr/run/trained_ranker.h"

namespace turbogr::apps {
namespace {

struct RankOptions {
  std::string checkpoint;
  std::string store;
  std::string user;
  std::string items, items_file;
  std::string requests;
  std::vector<std::string> context;
  std::optional<std::int64_t> at;
  std::string by;
  std::string unknown = "skip";
  std::string out;
  bool json = false;
  std::string titles;
  int threads = 0;
};

void check_rank_options(const RankOptions& options) {
  if (!options.requests.empty()) {
    check_usage(options.user.empty() && options.items.empty() && options.items_file.empty() &&
                    !options.at && options.context.empty(),
                "--requests FILE names users, items, times and contexts itself; leave out --user, "
                "--items, --items-file, --at and --context");
    return;
  }
  check_usage(!options.user.empty(), "rank for whom? Give --user ID, or --requests FILE");
  check_usage(options.items.empty() != options.items_file.empty(),
              "rank what? Give one of --items A,B,C and --items-file FILE");
}

std::vector<run::RankRequest> chosen_requests(const RankOptions& options,
                                              const data::Store& store) {
  const run::KnownIds known = {store, store.item_ids(), "item",
                               run::unknown_from_name(options.unknown)};
  if (!options.requests.empty()) return run::read_rank_requests(options.requests, known);
  run::RankRequest request =
      run::rank_request(store, options.user,
                        options.items.empty() ? run::indices_in_file(options.items_file, known)
                                              : run::indices_in_text(options.items, known),
                        options.at);
  TGR_CHECK(!request.sample.items.empty(),
            options.items.empty() ? "'" + options.items_file + "'" : "--items " + options.items,
            " names no item; give at least one");
  for (const std::string& each : options.context) {
    const std::size_t equals = each.find('=');
    check_usage(equals != std::string::npos, "--context ", each, "; write FEATURE=VALUE");
    run::add_context(store, each.substr(0, equals), each.substr(equals + 1), request);
  }
  return {std::move(request)};
}

std::size_t task_to_sort_by(const std::string& by, const std::vector<std::string>& tasks) {
  if (by.empty()) return 0;
  const auto found = std::find(tasks.begin(), tasks.end(), by);
  TGR_CHECK(found != tasks.end(), "--by ", by, ": there is no such task; the model has ",
            fmt::format("{}", fmt::join(tasks, ", ")));
  return static_cast<std::size_t>(found - tasks.begin());
}

void run_rank(const RankOptions& options) {
  const data::InterruptGuard guard;
  check_rank_options(options);
  const checkpoint::Checkpoint checkpoint = run::open_checkpoint(options.checkpoint);
  const run::Config config =
      run::parse_config(checkpoint.config(), checkpoint.folder() + "/config.toml");
  const data::Store store = run::open_store(config, options.store);
  const auto world = dist::make_self();
  run::TrainedRanker ranker(checkpoint, store,
                            run::threads_for_rank(options.threads, run::rank_cores(*world)), *world,
                            run::TrainedRanker::Use::kScore);
  std::vector<std::string> tasks;
  for (const data::SampleTask& task : ranker.setup().layout.tasks) tasks.push_back(task.name);
  const std::size_t by = task_to_sort_by(options.by, tasks);
  const data::ItemTitles titles = options.titles.empty()
                                      ? data::ItemTitles::of(store)
                                      : data::ItemTitles::read(options.titles, store);
  ScoreWriter writer(options.out, options.json, tasks);
  for (const run::RankRequest& request : chosen_requests(options, store)) {
    data::check_interrupt();
    const std::vector<float> scores = ranker.score({&request.sample, 1});
    std::vector<ScoredItem> items;
    for (std::size_t i = 0; i < request.sample.items.size(); ++i) {
      items.push_back(
          {request.sample.items[i], std::span(scores).subspan(i * tasks.size(), tasks.size())});
    }
    std::stable_sort(items.begin(), items.end(), [&](const ScoredItem& a, const ScoredItem& b) {
      return a.scores[by] > b.scores[by];
    });
    writer.write(request.user, items, store, titles);
  }
  writer.finish();
}

}  // namespace

Command* add_rank(Command& app) {
  auto options = std::make_shared<RankOptions>();
  Command* command =
      app.add_subcommand("rank", "Judge items for a user with a ranking model, task by task");
  command
      ->add_option("--checkpoint", options->checkpoint,
                   "Run folder (its best, or newest where none is kept), checkpoint, or "
                   "RUN/checkpoints/latest")
      ->required();
  command->add_option("--store", options->store, "Store; default: the one it was trained on");
  command->add_option(
      "--user", options->user,
      "The user's id; one that the store does not have is judged without a history");
  command->add_option("--items", options->items, "Item ids between commas");
  command->add_option("--items-file", options->items_file, "File with one item id a line");
  command->add_option("--requests", options->requests,
                      "File with a request a line, as JSON: {\"user\": 7, \"items\": [1, 2]}, and "
                      "\"at\" and \"context\" if wanted");
  command->add_option("--at", options->at,
                      "Time of the request, in the store's unit: events from then on are no "
                      "history; default: after the user's last event");
  command
      ->add_option("--context", options->context,
                   "FEATURE=VALUE: a feature of events that is known, such as where the items "
                   "are shown; may be given several times")
      ->allow_extra_args(false);
  command->add_option("--by", options->by, "Task to sort by; default: the first");
  command
      ->add_option("--unknown", options->unknown,
                   "Items that the store does not have: skip and count them, or stop (error)")
      ->check(is_one_of({"skip", "error"}))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON lines");
  command->add_option("--out", options->out,
                      "Write to this file, as CSV (.csv) or JSON lines (.jsonl)");
  command->add_option("--titles", options->titles,
                      "File with the items' titles; default: an item table of the store");
  command->add_option("--threads", options->threads, "Threads; 0: one a core")
      ->capture_default_str();
  command->callback([options] { run_rank(*options); });
  return command;
}

}  // namespace turbogr::apps
