// `turbogr data synth`: a world of any size that behaves like a published one.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <type_traits>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "turbogr/core/check.h"
#include "turbogr/core/progress.h"
#include "turbogr/data/dlrmv3/dlrmv3_store.h"
#include "turbogr/data/interrupt.h"
#include "turbogr/data/synth.h"
#include "turbogr/data/yambda/yambda_files.h"

namespace turbogr::apps {
namespace {

struct SynthCommand {
  data::SynthOptions options;
  std::string store;
  std::string csv;
  std::string parquet;
  int threads = 0;
  bool overwrite = false;
  bool numbers = false;
  double bayes_auc = 0.80;
  const Option* repeats = nullptr;  // whether these were given
  const Option* bayes_auc_given = nullptr;
};

void write_world(const data::SynthWorld& world, ThreadPool& pool, const std::string& store,
                 const data::SynthStoreOptions& options) {
  data::write_synth_store(world, pool, store, options);
}
void write_world(const data::YambdaWorld& world, ThreadPool& pool, const std::string& store,
                 const data::SynthStoreOptions& options) {
  data::write_yambda_store(world, pool, store, options);
}
void write_world(const data::Dlrmv3World& world, ThreadPool& pool, const std::string& store,
                 const data::SynthStoreOptions& options) {
  data::write_dlrmv3_store(world, pool, store, options);
}
void write_logs(const data::SynthWorld& world, ThreadPool& pool, const std::string& folder,
                const data::SynthProgress& show) {
  data::write_synth_csv(world, pool, folder, show);
}
void write_logs(const data::YambdaWorld& world, ThreadPool& pool, const std::string& folder,
                const data::SynthProgress& show) {
  data::write_yambda_csv(world, pool, folder, show);
}

void write_logs(const data::Dlrmv3World& world, ThreadPool& pool, const std::string& folder,
                const data::SynthProgress& show) {
  data::write_dlrmv3_csv(world, pool, folder, show);
}
std::int64_t items_of(const data::SynthWorld& world) { return world.catalogue().num_items(); }
std::int64_t items_of(const data::YambdaWorld& world) { return world.catalogue().num_items(); }
std::int64_t items_of(const data::Dlrmv3World& world) { return world.num_items(); }

template <class World>
void write_files(const SynthCommand& command, const World& world, ThreadPool& pool) {
  Progress progress(isatty(STDERR_FILENO) != 0);
  const auto timed = [&](const std::string& target, auto&& write) {
    progress.begin("making", world.num_events(), "events");
    const auto begin = std::chrono::steady_clock::now();
    write([&](std::int64_t events) { progress.update(events); });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    progress.clear();
    fmt::print("{}: {} users, {} events, a catalogue of {} items\n", target, world.num_users(),
               world.num_events(), items_of(world));
    fmt::print("made in {:.2f} s ({:.1f} M events/s on {} threads)\n", seconds.count(),
               static_cast<double>(world.num_events()) / seconds.count() / 1e6, pool.size());
  };
  if (!command.store.empty()) {
    timed(command.store, [&](const data::SynthProgress& show) {
      write_world(world, pool, command.store,
                  {.overwrite = command.overwrite, .numbers = command.numbers, .progress = show});
    });
  }
  if (!command.csv.empty()) {
    timed(command.csv,
          [&](const data::SynthProgress& show) { write_logs(world, pool, command.csv, show); });
  }
  if constexpr (std::is_same_v<World, data::YambdaWorld>) {
    if (command.parquet.empty()) return;
    timed(command.parquet, [&](const data::SynthProgress& show) {
      data::write_yambda_parquet(world, pool, command.parquet, show);
    });
  }
}

void make_yambda(const SynthCommand& command, ThreadPool& pool) {
  const data::YambdaWorld world({.users = command.options.users,
                                 .items = command.options.items,
                                 .mean_length = command.options.mean_length,
                                 .max_length = command.options.max_length,
                                 .bayes_auc = command.bayes_auc,
                                 .seed = command.options.seed});
  write_files(command, world, pool);
  fmt::print(
      "who knows this world tells listens of half a track from others with an AUC of {:.4f}\n",
      world.bayes_auc());
}

void make_dlrmv3(const SynthCommand& command, ThreadPool& pool) {
  const data::Dlrmv3World world({.users = command.options.users,
                                 .items = command.options.items,
                                 .seed = command.options.seed});
  write_files(command, world, pool);
  const data::Dlrmv3World::BayesAuc auc = world.bayes_auc();
  fmt::print(
      "who knows this world tells liked candidates from others with an AUC of {:.4f}, and those of "
      "one request with {:.4f} (GAUC)\n",
      auc.all, auc.by_request);
}

// Options that the kind of world would not look at.
void check_synth_options(const SynthCommand& command) {
  const std::string& like = command.options.like;
  check_usage(!command.store.empty() || !command.csv.empty() || !command.parquet.empty(),
              "say where the world goes: --out STORE, --csv FOLDER, or both");
  check_usage(command.parquet.empty() || like == "yambda",
              "--parquet is for --like yambda, and this is ", like, "; take --out or --csv");
  check_usage(!command.store.empty() || !command.numbers,
              "--numbers is about a store, which has signals alone without it; give --out, or "
              "leave it out");
  const bool own_repeats = like == "kuairand27k" || like == "movielens";
  check_usage(own_repeats || !command.repeats->given(), "--repeats is not for --like ", like,
              ", whose repeats are as published; leave it out");
  check_usage(like == "yambda" || !command.bayes_auc_given->given(),
              "--bayes-auc is for --like yambda, and this is ", like, "; leave it out");
  if (like != "dlrmv3") return;
  check_usage(command.options.mean_length == 0 && command.options.max_length == 0,
              "--mean-length and --max-length are not for --like dlrmv3, whose users meet about "
              "100 items a step; leave them out");
}

void run_synth(const SynthCommand& command) {
  check_synth_options(command);
  const data::InterruptGuard guard;
  ThreadPool pool(command.threads);
  if (command.options.like == "yambda") return make_yambda(command, pool);
  if (command.options.like == "dlrmv3") return make_dlrmv3(command, pool);
  write_files(command, data::SynthWorld(command.options), pool);
}

}  // namespace

void add_data_synth(Command& data) {
  auto* command = data.add_subcommand("synth", "Make a world like a published one, of any size");
  auto synth = std::make_shared<SynthCommand>();
  command->add_option("--like", synth->options.like, "kuairand27k, movielens, yambda or dlrmv3")
      ->check(is_one_of({"kuairand27k", "movielens", "yambda", "dlrmv3"}))
      ->capture_default_str();
  command->add_option("--users", synth->options.users, "how many users")->required();
  command->add_option(
      "--items", synth->options.items,
      "catalogue; fewer than usual keeps the popular ones (default: as the original)");
  command->add_option("--mean-length", synth->options.mean_length,
                      "scale every history to this mean (default: as the original)");
  command->add_option("--max-length", synth->options.max_length, "cut longer histories");
  synth->repeats =
      command
          ->add_option("--repeats", synth->options.repeats,
                       "share of events that repeat one of the user's last 64 items, as music does")
          ->capture_default_str();
  command->add_option("--seed", synth->options.seed, "another seed, another world")
      ->capture_default_str();
  command->add_option("--threads", synth->threads, "0: one a core; the world is the same")
      ->capture_default_str();
  command->add_option("--out", synth->store, "the sequence store to write");
  command->add_option(
      "--csv", synth->csv,
      "a folder for raw logs in the files and columns of KuaiRand, Yambda or DLRMv3");
  command->add_option("--parquet", synth->parquet,
                      "yambda: a folder for Parquet files of the published columns and types "
                      "(`make parquet` builds what that needs)");
  command->add_flag("--numbers", synth->numbers,
                    "keep play_time_ms and duration_ms in the store, as prepare does; of yambda "
                    "played_ratio_pct and track_length_seconds, of dlrmv3 rating");
  synth->bayes_auc_given =
      command
          ->add_option("--bayes-auc", synth->bayes_auc,
                       "yambda: the best AUC that anybody can have in predicting listens")
          ->capture_default_str();
  command->add_flag("--overwrite", synth->overwrite, "replace a store that exists");
  command->callback([synth] { run_synth(*synth); });
}

}  // namespace turbogr::apps
