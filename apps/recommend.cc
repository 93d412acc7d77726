// `turbogr recommend`: the best k items for users of a store, or for a history given by hand.
// Several ranks share the items.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/list_writer.h"
#include "apps/same_command.h"
#include "apps/user_progress.h"
#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/core/progress.h"
#include "turbogr/data/interrupt.h"
#include "turbogr/data/item_titles.h"
#include "turbogr/data/store.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/eval/seen_items.h"
#include "turbogr/run/history.h"
#include "turbogr/run/rank_cores.h"
#include "turbogr/run/recommend_inputs.h"
#include "turbogr/run/run_options.h"
#include "turbogr/run/seen_rule.h"
#include "turbogr/run/sequences.h"
#include "turbogr/run/trained_model.h"

namespace turbogr::apps {
namespace {

struct RecommendOptions {
  std::string checkpoint;
  std::string store;
  std::string user;
  std::string users;
  std::string history;
  bool all = false;
  std::string split;
  std::optional<std::int64_t> at;
  std::int64_t k = 10;
  std::string allow, allow_file, block, block_file;
  bool untrained_items = false;
  std::string seen;
  std::string unknown = "skip";
  std::string out;
  std::string titles;
  int threads = 0;
};

constexpr std::int64_t kListsAtOnce = 1 << 22;  // entries of all lists of a batch, at most

void check_options(const RecommendOptions& options) {
  const int ways = static_cast<int>(!options.user.empty()) +
                   static_cast<int>(!options.users.empty()) +
                   static_cast<int>(!options.history.empty()) + static_cast<int>(options.all);
  check_usage(ways <= 1, "recommend for whom? ", ways,
              " ways were named; give one of --user ID, --users FILE, --all and --history FILE");
  check_usage(ways == 1,
              "recommend for whom? Give one of --user ID, --users FILE, --all and --history FILE");
  check_usage(
      options.split.empty() || (options.history.empty() && !options.at),
      "--split asks what an evaluation asks, of users of the store and at the time of their "
      "targets; leave out --history and --at, or --split");
  check_usage(options.allow.empty() || options.allow_file.empty(),
              "two lists of items to choose from; give one of --allow and --allow-file");
  check_usage(options.block.empty() || options.block_file.empty(),
              "two lists of items to leave out; give one of --block and --block-file");
}

// A user who is named twice gets one list.
void drop_named_again(std::vector<std::int64_t>& users, std::int64_t num_users) {
  std::vector<bool> named(static_cast<std::size_t>(num_users));
  const auto again = std::erase_if(users, [&](std::int64_t user) {
    const bool before = named[static_cast<std::size_t>(user)];
    named[static_cast<std::size_t>(user)] = true;
    return before;
  });
  if (again > 0) log::warn("{} lines name a user again: each gets one list", again);
}

// Users of the store who have a history, in the order asked for.
std::vector<std::int64_t> chosen_users(const RecommendOptions& options, const data::Store& store) {
  std::vector<std::int64_t> users;
  if (options.all) {
    users.resize(static_cast<std::size_t>(store.num_users()));
    std::iota(users.begin(), users.end(), std::int64_t{0});
  } else {
    const run::KnownIds known = {store, store.user_ids(), "user",
                                 run::unknown_from_name(options.unknown)};
    users = options.users.empty() ? run::index_of(options.user, known)
                                  : run::indices_in_file(options.users, known);
    TGR_CHECK(!users.empty(), "'", options.users, "' names no user; give one id a line");
    drop_named_again(users, store.num_users());
  }
  const auto without_events =
      std::erase_if(users, [&](std::int64_t user) { return store.events_of(user).count == 0; });
  TGR_CHECK(!users.empty(), "the ", without_events, " users asked for have no events to go by");
  if (without_events > 0) log::warn("{} users skipped: they have no events", without_events);
  return users;
}

std::vector<std::int64_t> chosen_items(const RecommendOptions& options,
                                       const checkpoint::Checkpoint& checkpoint,
                                       const run::Config& config, const data::Store& store) {
  const run::KnownIds known = {store, store.item_ids(), "item",
                               run::unknown_from_name(options.unknown)};
  const auto listed = [&](const std::string& ids, const std::string& file) {
    return file.empty() ? run::indices_in_text(ids, known) : run::indices_in_file(file, known);
  };
  run::CandidateRule rule;
  if (!options.allow.empty() || !options.allow_file.empty()) {
    rule.only = listed(options.allow, options.allow_file);
  }
  if (!options.block.empty() || !options.block_file.empty()) {
    rule.without = listed(options.block, options.block_file);
  }
  rule.untrained = options.untrained_items;
  return run::candidate_items(checkpoint, config, store, rule);
}

std::unique_ptr<run::Sequences> sequences_of(const RecommendOptions& options,
                                             const run::Config& config, const data::Store& store,
                                             const run::HistoryOptions& history) {
  std::vector<std::int64_t> users = chosen_users(options, store);
  if (options.split.empty()) {
    return std::make_unique<run::WholeHistories>(store, std::move(users), history);
  }
  const data::Split split = options.split == "test" ? data::Split::kTest : data::Split::kValidation;
  return std::make_unique<run::EvaluationHistories>(
      store, users, run::eval_loader_options(config, store, split, run::kTokensAtOnce));
}

void warn_of_empty_lists(std::int64_t users) {
  if (users == 0) return;
  log::warn("{} users have no list: they have met every item there is (--seen keep ranks those)",
            users);
}

// Several ranks share the items; rank 0 has the users and writes their lists.
void run_recommend(const RecommendOptions& options, dist::Communicator& world) {
  const bool leads = world.rank() == 0;
  if (!leads) log::set_up("error");  // rank 0 speaks for all
  check_same_command(world, "recommend", SameCommand::kWords);
  const data::InterruptGuard guard;
  std::optional<ListWriter> writer;
  if (leads) writer.emplace(options.out);
  const checkpoint::Checkpoint checkpoint = run::open_checkpoint(world, options.checkpoint);
  const run::Config config =
      run::parse_config(checkpoint.config(), checkpoint.folder() + "/config.toml");
  run::check_finds_items(config, checkpoint);
  const data::Store store = run::open_store(config, options.store);
  const eval::SeenItems seen = run::seen_for(checkpoint, config, options.seen);
  const run::HistoryOptions history = {.max_length = config.data.max_length,
                                       .milliseconds = config.model.time_unit == "milliseconds",
                                       .query_time = options.at};
  const data::ItemTitles titles = options.titles.empty()
                                      ? data::ItemTitles::of(store)
                                      : data::ItemTitles::read(options.titles, store);
  std::unique_ptr<run::Sequences> sequences;
  data::Batch batch;
  if (options.history.empty()) {
    sequences = sequences_of(options, config, store, history);
  } else {
    const std::vector<run::HistoryEvent> events =
        run::read_history(options.history, store, run::unknown_from_name(options.unknown));
    run::history_batch(store, std::span(&events, 1), history, batch);
  }
  std::vector<std::int64_t> candidates = chosen_items(options, checkpoint, config, store);
  const std::int64_t items = candidates.empty() ? store.num_items() : std::ssize(candidates);
  const std::int64_t k = std::min(options.k, items);
  if (k < options.k) {
    log::warn("--k {} is more than the {} items there are to recommend: all of them are ranked",
              options.k, k);
  }
  run::device_for_rank(config, world);
  // For one user or a few there is no need of room for thousands of tokens.
  std::int64_t tokens = batch.num_tokens();
  for (std::int64_t i = 0; sequences && i < sequences->size() && tokens < run::kTokensAtOnce; ++i) {
    tokens += sequences->tokens(i);
  }
  run::TrainedModel model(
      checkpoint, store, run::threads_for_rank(options.threads, run::rank_cores(world)), world,
      run::TrainedModel::Weights::kTrained, std::min(tokens, run::kTokensAtOnce));
  if (!candidates.empty()) model.set_candidates(std::move(candidates));
  const data::Batch nobody = {.offsets = {0}, .seen_offsets = {0}};
  if (!sequences) {
    const auto lists = model.recommend(leads ? batch : nobody, k, seen);
    if (!leads) return;
    writer->write("history", batch, 0, lists.front(), store, titles);
    writer->finish();
    warn_of_empty_lists(lists.front().empty() ? 1 : 0);
    return;
  }
  const UserProgress::Speaks speaks =
      leads && writer->to_file() ? UserProgress::Speaks::kYes : UserProgress::Speaks::kNo;
  UserProgress progress("recommend", sequences->size(), speaks);
  std::int64_t without_items = 0;
  for (std::int64_t first = 0; first < sequences->size();) {
    const std::int64_t end = run::batch_end(*sequences, first, kListsAtOnce / k);
    if (leads) sequences->fill(first, end, batch);
    const auto lists = model.recommend(leads ? batch : nobody, k, seen);
    for (std::size_t i = 0; i < lists.size(); ++i) {
      const std::int64_t user = sequences->user(first + static_cast<std::int64_t>(i));
      without_items += lists[i].empty() ? 1 : 0;
      writer->write(store.user_ids().text(user), batch, i, lists[i], store, titles);
    }
    first = end;
    progress.update(first);
    data::check_interrupt();
  }
  if (!leads) return;
  writer->finish();
  warn_of_empty_lists(without_items);
  if (!writer->to_file()) return;
  log::info("{}: lists of {} users in {:.3g} s, {} a second; seen items {}", options.out,
            grouped_text(writer->users()), progress.seconds(),
            grouped_text(static_cast<std::int64_t>(static_cast<double>(writer->users()) /
                                                   progress.seconds())),
            seen == eval::SeenItems::kDrop ? "dropped" : "kept");
}

}  // namespace

void add_recommend(Command& app) {
  auto options = std::make_shared<RecommendOptions>();
  Command* command = app.add_subcommand("recommend", "The best items for users or a history");
  command
      ->add_option("--checkpoint", options->checkpoint,
                   "Run folder (its best, or newest where none is kept), checkpoint, or "
                   "RUN/checkpoints/latest")
      ->required();
  command->add_option("--store", options->store, "Store; default: the one it was trained on");
  command->add_option("--user", options->user, "One user's id");
  command->add_option("--users", options->users,
                      "File with one user id a line; all (where no file is called that): as --all");
  command->add_flag("--all", options->all, "Every user of the store");
  command->add_option("--history", options->history,
                      "File with one 'item' or 'item,time' a line, oldest first");
  command->add_option("--at", options->at,
                      "Time of the query, in the store's unit; default: the last event's");
  command
      ->add_option("--split", options->split,
                   "validation or test: ask what `eval` asks, from the history before the "
                   "held-out target; default: from whole histories")
      ->check(is_one_of({"validation", "test"}));
  command->add_option("--k", options->k, "How many items")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--allow", options->allow, "Only these items: ids between commas");
  command->add_option("--allow-file", options->allow_file, "Only these items: one id a line");
  command->add_option("--block", options->block, "Not these items: ids between commas");
  command->add_option("--block-file", options->block_file, "Not these items: one id a line");
  command->add_flag("--untrained-items", options->untrained_items,
                    "Also items that do not occur in training: useful where features of items "
                    "say what they are; otherwise their vectors mean nothing");
  command
      ->add_option("--seen", options->seen,
                   "drop or keep items the user has met; default: eval.seen of the run")
      ->check(is_one_of({"drop", "keep"}));
  command
      ->add_option("--unknown", options->unknown,
                   "Ids that the store does not have: skip and count them, or stop (error)")
      ->check(is_one_of({"skip", "error"}))
      ->capture_default_str();
  command->add_option(
      "--out", options->out,
      "Write to this file, as CSV (.csv), JSON lines (.jsonl) or Parquet (.parquet)");
  command->add_option("--titles", options->titles,
                      "File with the items' titles; default: an item table of the store");
  command
      ->add_option("--threads", options->threads, "Threads a rank; 0: cores / ranks of the machine")
      ->capture_default_str();
  command->callback([options] {
    if (options->users == "all" && !std::filesystem::exists(options->users)) {
      options->users.clear();
      options->all = true;
    }
    check_options(*options);
    dist::run_as_launched([&](dist::Communicator& world) { run_recommend(*options, world); });
  });
}

}  // namespace turbogr::apps
