#include "turbogr/run/run_checkpoints.h"

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "turbogr/checkpoint/device_tensors.h"
#include "turbogr/checkpoint/shared_checkpoint.h"
#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/core/output_file.h"
#include "turbogr/data/checksum.h"
#include "turbogr/run/seen_rule.h"
#include "turbogr/run/trained_model.h"
#include "turbogr/run/vocabularies.h"

namespace turbogr::run {
namespace {

using nlohmann::json;

[[noreturn]] void refuse_state(const checkpoint::Checkpoint& saved) {
  detail::throw_error("checkpoint '", saved.folder(),
                      "': its state.json does not say where the run stood (loader, epoch, window) "
                      "as this program writes it; go on from another checkpoint");
}

// A run that was killed before its first checkpoint loses nothing by beginning again; one whose
// checkpoints are gone loses what it has logged.
void check_beginning_again(const RunFolder& folder, bool start_over) {
  std::error_code absent;
  const bool logged = std::filesystem::file_size(folder.metrics(), absent) > 0 && !absent;
  TGR_CHECK(!logged || start_over || checkpoint::never_saved(folder.checkpoints()), "the run in '",
            folder.path, "' has logged figures, and its checkpoints are gone from '",
            folder.checkpoints(),
            "': put them back to go on, or name another run.dir; --run.start_over=true begins at "
            "step 0 and drops what was logged");
  const std::string from = parse_config(read_file(folder.config()), folder.config()).run.start_from;
  TGR_CHECK(from.empty(), "the run in '", folder.path, "' began with the weights of '", from,
            "' and has saved none of its own: remove the folder and start again with "
            "--run.start_from instead of --run.resume");
}

// Of all that training reads; titles and the like may change.
std::string events_checksum(const data::Store& store) {
  std::string sums;
  for (const data::FileEntry& column : store.manifest().columns) {
    sums += column.name + " " + column.checksum + "\n";
  }
  return data::checksum_of(sums.data(), sums.size());
}

void check_same_events(const checkpoint::Checkpoint& saved, const data::Store& store) {
  const json was = saved.state().value("store", json());
  if (was.is_null()) {
    log::warn("checkpoint '{}' does not say which events it was trained on (an older program's)",
              saved.folder());
    return;
  }
  const std::string is = events_checksum(store);
  TGR_CHECK(was == is, "checkpoint '", saved.folder(),
            "' was trained on other events than those of '", store.folder().string(),
            "' (checksum ", is, ", was ", was.dump(),
            "): give --data.store the store it was trained on, or start a new run on this one with "
            "--run.start_from=",
            saved.folder());
}

}  // namespace

RunCheckpoints::RunCheckpoints(const Context& ctx, dist::Communicator& world, const Config& config,
                               const data::Store& store, const RunFolder& folder, Task& task)
    : ctx_(ctx), world_(world), config_(config), store_(store), folder_(folder), task_(task) {}

std::optional<std::int64_t> RunCheckpoints::resume(bool start_over, RunPosition& position,
                                                   std::optional<LoggedBytes>& logged) {
  if (checkpoint::list_checkpoints(folder_.checkpoints()).empty() &&
      std::filesystem::exists(folder_.config())) {
    check_beginning_again(folder_, start_over);
    if (leads()) {
      log::info("'{}' has no checkpoint{}; starting from the beginning", folder_.path,
                start_over ? "" : " yet");
    }
    return std::nullopt;
  }
  const checkpoint::Checkpoint saved = checkpoint::open_newest_checkpoint(
      world_, folder_.checkpoints(), config_.checkpoint.fall_back);
  const Config was = parse_config(saved.config(), saved.folder() + "/config.toml");
  for (const char* section :
       {"task", "model.", "samples.", "tables.", "features.", "tasks.", "embedding.cut",
        "train.loss_scale", "eval.group", "data.holdout", "data.max_length", "data.history",
        "data.shuffle", "train.dtype", "train.products", "run.seed"}) {
    const std::vector<std::string> differences = config_differences(was, config_, section);
    TGR_CHECK(differences.empty(), "cannot go on from checkpoint '", saved.folder(),
              "': ", differences.front(),
              "; a resumed run keeps its model, its data and how it is judged");
  }
  const std::string seen = check_same_seen(was, config_);
  if (leads() && !seen.empty()) log::warn("{}", seen);
  task_.check_saved(saved);
  check_same_events(saved, store_);
  checkpoint::read_tensors(ctx_, saved, task_.weights(), {"model"});
  checkpoint::read_tensors(ctx_, saved, task_.moments(), {"optimiser"});
  read_tables(saved, checkpoint::TableParts::kAll);
  task_.set_steps_done(saved.step());
  task_.refresh();
  try {
    const json& state = saved.state();
    task_.restore(data::LoaderState::from_json(state.at("loader").get<std::string>()));
    position.restore(state);
    logged = LoggedBytes::of(state);
  } catch (const json::exception&) {
    refuse_state(saved);
  }
  last_saved_ = saved.step();  // saving it again without its score would lose that
  if (leads()) log::info("resumed from {} at step {}", saved.folder(), saved.step());
  return saved.step();
}

void RunCheckpoints::read_tables(const checkpoint::Checkpoint& saved,
                                 checkpoint::TableParts wanted) {
  for (const TaskTable& table : task_.tables()) {
    checkpoint::read_table(ctx_, saved, table.name, wanted, table.sharding, table.index,
                           table.part);
  }
}

void RunCheckpoints::start_from() {
  const checkpoint::Checkpoint saved =
      open_checkpoint(world_, config_.run.start_from, Pick::kNewest);
  const Config was = parse_config(saved.config(), saved.folder() + "/config.toml");
  for (const char* section : {"task", "model.", "tables.", "features.", "tasks."}) {
    const std::vector<std::string> differences = config_differences(was, config_, section);
    TGR_CHECK(differences.empty(), "cannot start from checkpoint '", saved.folder(),
              "': ", differences.front(), "; use its model");
  }
  const std::string known = task_.start_from(saved);
  task_.refresh();
  if (leads()) log::info("started from {}: {}", saved.folder(), known);
}

std::string RunCheckpoints::load_best() {
  if (config_.checkpoint.keep_best == 0) return "";
  const std::string best =
      world_.all_gather_text(leads() ? checkpoint::best_checkpoint(folder_.checkpoints()) : "")[0];
  std::string name = std::filesystem::path(best).filename().string();
  if (best.empty() || checkpoint::checkpoint_step(name) == task_.steps_done()) return "";
  const checkpoint::Checkpoint saved = checkpoint::open_named_checkpoint(world_, best);
  checkpoint::read_tensors(ctx_, saved, task_.weights(), {"model"});
  read_tables(saved, checkpoint::TableParts::kWeights);
  task_.refresh();
  return name;
}

// Groups are replicas of each other: the one of rank 0 writes.
void RunCheckpoints::open_writer() {
  bool writes = true;
  if (world_.size() > 1) {
    const std::vector<int>& group_of = task_.ranks().topology.group_of;
    writes = group_of[static_cast<std::size_t>(world_.rank())] == group_of[0];
    writing_ranks_ = world_.split(writes ? 0 : 1, world_.rank(), "checkpoints");
  }
  if (!writes) return;
  checkpoint::CheckpointWriterOptions options = {
      .keep_last = config_.checkpoint.keep_last,
      .keep_best = config_.checkpoint.keep_best,
      .background = config_.checkpoint.background,
      .device = ctx_.device() == Device::kCuda ? &ctx_ : nullptr,
      .ranks = writing_ranks_.get()};
  if (leads()) options.check_folder = [this] { folder_.check_in_place(); };
  writer_ = std::make_unique<checkpoint::CheckpointWriter>(folder_.checkpoints(), options);
}

void RunCheckpoints::save(const RunPosition& position, const std::optional<LoggedBytes>& logged,
                          const std::string& command, std::optional<double> score) {
  if (last_saved_ == task_.steps_done() && !score) return;
  last_saved_ = task_.steps_done();
  task_.settle();
  if (!writer_) return;
  checkpoint::CheckpointContents contents;
  contents.step = task_.steps_done();
  for (const TaskTable& table : task_.tables()) {
    contents.tables.push_back(
        checkpoint::table_contents(table.name, table.part, table.sharding, table.index));
  }
  if (!leads()) return writer_->save(contents);
  contents.shards = {{"model", task_.weights()}, {"optimiser", task_.moments()}};
  for (checkpoint::CheckpointShard& shard : task_.other_shards())
    contents.shards.push_back(std::move(shard));
  contents.state = {{"loader", task_.position().to_json()},
                    {"store", events_checksum(store_)},
                    {"vocabularies", vocabularies_of(store_)},
                    {"metrics", logged->to_json()}};
  position.add_to(contents.state, task_.times());
  contents.config = config_text(config_);
  contents.command = command;
  contents.score = score;
  writer_->save(contents);
}

void RunCheckpoints::wait() {
  if (writer_) writer_->wait();
}

}  // namespace turbogr::run
