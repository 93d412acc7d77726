// `turbogr export`: the vectors retrieval compares, for another system's nearest-neighbour search.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/user_progress.h"
#include "turbogr/core/tensor.h"
#include "turbogr/data/interrupt.h"
#include "turbogr/data/store.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/run/history.h"
#include "turbogr/run/item_names.h"
#include "turbogr/run/sequences.h"
#include "turbogr/run/trained_model.h"
#include "turbogr/run/vector_files.h"

namespace turbogr::apps {
namespace {

struct ExportOptions {
  std::string checkpoint;
  std::string store;
  std::string out;
  std::string format;  // as out ends
  bool users = true;
  int threads = 0;
};

// The file, whose ending says the format: that of --format where no file is named.
void settle_out(ExportOptions& options) {
  if (options.out.empty()) {
    options.out = "vectors." + (options.format.empty() ? "safetensors" : options.format);
  }
  check_usage(options.format.empty() || options.out.ends_with("." + options.format), "--format ",
              options.format, " and --out ", options.out,
              " ask for two formats; leave one of them out");
}

constexpr std::int64_t kItemsAtOnce = 4096;

void run_export(const ExportOptions& options) {
  const data::InterruptGuard guard;
  run::check_vector_file(options.out);
  const checkpoint::Checkpoint checkpoint = run::open_checkpoint(options.checkpoint);
  const run::Config config =
      run::parse_config(checkpoint.config(), checkpoint.folder() + "/config.toml");
  const data::Store store = run::open_store(config, options.store);
  const std::unique_ptr<dist::Communicator> alone = dist::make_self();
  run::TrainedModel model(checkpoint, store, options.threads, *alone);
  const std::int64_t width = config.model.width;
  std::vector<std::uint8_t> trained = run::trained_items(checkpoint, config, store);
  const auto give_items = [&](const run::TakeVectors& take) {
    Tensor block(DType::kF32, {std::min(kItemsAtOnce, store.num_items()), width});
    for (std::int64_t first = 0; first < store.num_items(); first += kItemsAtOnce) {
      const std::int64_t count = std::min(kItemsAtOnce, store.num_items() - first);
      const View<float, 2> vectors = {block.view<float, 2>().data, {count, width}};
      model.item_vectors(first, vectors);
      take(vectors);
      data::check_interrupt();
    }
  };
  const auto give_users = [&](const run::TakeVectors& take) {
    const run::HistoryOptions history = {.max_length = config.data.max_length,
                                         .milliseconds = config.model.time_unit == "milliseconds",
                                         .query_time = {}};
    std::vector<std::int64_t> everybody(static_cast<std::size_t>(store.num_users()));
    std::iota(everybody.begin(), everybody.end(), std::int64_t{0});
    const run::WholeHistories sequences(store, std::move(everybody), history);
    UserProgress progress("export", sequences.size());
    data::Batch batch;
    for (std::int64_t first = 0; first < sequences.size();) {
      const std::int64_t end = run::batch_end(sequences, first, sequences.size());
      sequences.fill(first, end, batch);
      const Tensor vectors = model.user_vectors(batch);
      take(vectors.view<float, 2>());
      first = end;
      progress.update(first);
      data::check_interrupt();
    }
  };
  std::vector<run::ExportedVectors> all = {{"item", width, store.item_ids(), &trained, give_items}};
  if (options.users) all.push_back({"user", width, store.user_ids(), nullptr, give_users});
  const std::vector<std::string> written = run::write_vectors(options.out, all);
  fmt::print("{}: {} item vectors{} of width {}\n", fmt::join(written, ", "), store.num_items(),
             options.users ? fmt::format(" and {} user vectors", store.num_users()) : "", width);
}

}  // namespace

Command* add_export(Command& app) {
  auto options = std::make_shared<ExportOptions>();
  Command* command =
      app.add_subcommand("export", "Write item (and user) vectors for other systems");
  command
      ->add_option("--checkpoint", options->checkpoint,
                   "Run folder (its best, or newest where none is kept), checkpoint, or "
                   "RUN/checkpoints/latest")
      ->required();
  command->add_option("--store", options->store, "Store; default: the one it was trained on");
  command->add_option(
      "--out", options->out,
      "File to write: .safetensors, or .npy or .parquet, which become NAME.items.npy and so "
      "on; default: vectors.safetensors");
  command
      ->add_option("--format", options->format,
                   "safetensors, npy or parquet: of vectors.FORMAT where --out names no file")
      ->check(is_one_of({"safetensors", "npy", "parquet"}));
  command->add_flag("--users,!--no-users", options->users,
                    "The vector of every user's whole history too (the default)");
  command->add_option("--threads", options->threads, "Threads; 0: one a core")
      ->capture_default_str();
  command->callback([options] {
    settle_out(*options);
    run_export(*options);
  });
  return command;
}

}  // namespace turbogr::apps
