// `turbogr data synth`: a world of any size that behaves like a published one.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "turbogr/core/check.h"
#include "turbogr/core/progress.h"
#include "turbogr/data/interrupt.h"
#include "turbogr/data/synth.h"

namespace turbogr::apps {
namespace {

struct SynthCommand {
  data::SynthOptions options;
  std::string store;
  std::string csv;
  int threads = 0;
  bool overwrite = false;
  bool numbers = false;
};

void run_synth(const SynthCommand& command) {
  TGR_CHECK(!command.store.empty() || !command.csv.empty(),
            "say where the world goes: --out STORE, --csv FOLDER, or both");
  const data::InterruptGuard guard;
  ThreadPool pool(command.threads);
  const data::SynthWorld world(command.options);
  Progress progress(isatty(STDERR_FILENO) != 0);
  const auto timed = [&](const std::string& target, auto&& write) {
    progress.begin("making", world.num_events(), "events");
    const auto begin = std::chrono::steady_clock::now();
    write([&](std::int64_t events) { progress.update(events); });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    progress.clear();
    fmt::print("{}: {} users, {} events, a catalogue of {} items\n", target, world.num_users(),
               world.num_events(), world.catalogue().num_items());
    fmt::print("made in {:.2f} s ({:.1f} M events/s on {} threads)\n", seconds.count(),
               static_cast<double>(world.num_events()) / seconds.count() / 1e6, pool.size());
  };
  if (!command.store.empty()) {
    timed(command.store, [&](const data::SynthProgress& show) {
      data::write_synth_store(
          world, pool, command.store,
          {.overwrite = command.overwrite, .numbers = command.numbers, .progress = show});
    });
  }
  if (!command.csv.empty()) {
    timed(command.csv, [&](const data::SynthProgress& show) {
      data::write_synth_csv(world, pool, command.csv, show);
    });
  }
}

}  // namespace

void add_data_synth(Command& data) {
  auto* command = data.add_subcommand("synth", "Make a world like a published one, of any size");
  auto synth = std::make_shared<SynthCommand>();
  command->add_option("--like", synth->options.like, "kuairand27k or movielens")
      ->capture_default_str();
  command->add_option("--users", synth->options.users, "how many users")->required();
  command->add_option(
      "--items", synth->options.items,
      "catalogue; fewer than usual keeps the popular ones (default: as the original)");
  command->add_option("--mean-length", synth->options.mean_length,
                      "scale every history to this mean (default: as the original)");
  command->add_option("--max-length", synth->options.max_length, "cut longer histories");
  command
      ->add_option("--repeats", synth->options.repeats,
                   "share of events that repeat one of the user's last 64 items, as music does")
      ->capture_default_str();
  command->add_option("--seed", synth->options.seed, "another seed, another world")
      ->capture_default_str();
  command->add_option("--threads", synth->threads, "0: one a core; the world is the same")
      ->capture_default_str();
  command->add_option("--out", synth->store, "the sequence store to write");
  command->add_option("--csv", synth->csv, "a folder for raw logs in KuaiRand's own files");
  command->add_flag("--numbers", synth->numbers,
                    "keep play_time_ms and duration_ms in the store, as prepare does");
  command->add_flag("--overwrite", synth->overwrite, "replace a store that exists");
  command->callback([synth] { run_synth(*synth); });
}

}  // namespace turbogr::apps
