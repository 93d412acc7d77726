// What a run saves, goes on from and starts from.
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/checkpoint/device_tensors.h"
#include "turbogr/checkpoint/shared_checkpoint.h"
#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/core/output_file.h"
#include "turbogr/data/checksum.h"
#include "turbogr/run/seen_rule.h"
#include "turbogr/run/trained_model.h"
#include "turbogr/run/training_run_class.h"
#include "turbogr/run/vocabularies.h"
#include "turbogr/train/stages.h"

namespace turbogr::run {
namespace {

using nlohmann::json;

// The figures of steps that no line has yet: the first line after a resume counts them, too.
json window_state(const Window& window, const train::StageTimes& stages) {
  const train::StageTimes since = stages - window.stages;
  return {{"loss_sum", window.loss_sum},
          {"predicting", window.predicting},
          {"tokens", window.tokens},
          {"seconds", window.seconds},
          {"flops", {window.flops.causal, window.flops.paper}},
          {"stages", {since.compute, since.dense_communication, since.sparse_communication}}};
}

[[noreturn]] void refuse_state(const checkpoint::Checkpoint& saved) {
  detail::throw_error("checkpoint '", saved.folder(),
                      "': its state.json does not say where the run stood (loader, epoch, window) "
                      "as this program writes it; go on from another checkpoint");
}

std::int64_t count_of(const json& value, const checkpoint::Checkpoint& saved) {
  const auto count = value.is_number_integer() ? value.get<std::int64_t>() : -1;
  if (count < 0) refuse_state(saved);
  return count;
}

// A number that is not finite is null in JSON.
double number_of(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

Window window_from(const json& state, const checkpoint::Checkpoint& saved) {
  Window window;
  window.loss_sum = number_of(state.at("loss_sum"));
  window.predicting = count_of(state.at("predicting"), saved);
  window.tokens = count_of(state.at("tokens"), saved);
  window.seconds = state.at("seconds").get<double>();
  window.flops = {state.at("flops").at(0).get<double>(), state.at("flops").at(1).get<double>()};
  const json& stages = state.at("stages");
  // The clocks of a new trainer begin at zero.
  window.stages = train::StageTimes{} - train::StageTimes{stages.at(0).get<double>(),
                                                          stages.at(1).get<double>(),
                                                          stages.at(2).get<double>()};
  return window;
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

std::optional<std::int64_t> TrainingRun::resume() {
  const bool start_over = std::exchange(config_.run.start_over, false);  // this once
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
  task_->check_saved(saved);
  check_same_events(saved, store_);
  checkpoint::read_tensors(ctx_, saved, task_->weights(), {"model"});
  checkpoint::read_tensors(ctx_, saved, task_->moments(), {"optimiser"});
  read_tables(saved, checkpoint::TableParts::kAll);
  task_->set_steps_done(saved.step());
  task_->refresh();
  try {
    const json& state = saved.state();
    task_->restore(data::LoaderState::from_json(state.at("loader").get<std::string>()));
    epoch_ = count_of(state.at("epoch"), saved);
    bad_steps_ = count_of(state.value("bad_steps", json(0)), saved);
    skipped_steps_ = count_of(state.value("skipped_steps", json(0)), saved);
    early_stopping_.restore(state.value("early_stopping", json::object()));
    if (early_stopping_.since_best() < 0) refuse_state(saved);
    if (state.contains("window")) window_ = window_from(state.at("window"), saved);
    logged_ = LoggedBytes::of(state);
  } catch (const json::exception&) {
    refuse_state(saved);
  }
  last_saved_ = saved.step();  // saving it again without its score would lose that
  if (leads()) log::info("resumed from {} at step {}", saved.folder(), saved.step());
  return saved.step();
}

void TrainingRun::read_tables(const checkpoint::Checkpoint& saved, checkpoint::TableParts wanted) {
  for (const TaskTable& table : task_->tables()) {
    checkpoint::read_table(ctx_, saved, table.name, wanted, table.sharding, table.index,
                           table.part);
  }
}

void TrainingRun::start_from() {
  const checkpoint::Checkpoint saved = open_checkpoint(config_.run.start_from, Pick::kNewest);
  const Config was = parse_config(saved.config(), saved.folder() + "/config.toml");
  for (const char* section : {"task", "model.", "tables.", "features.", "tasks."}) {
    const std::vector<std::string> differences = config_differences(was, config_, section);
    TGR_CHECK(differences.empty(), "cannot start from checkpoint '", saved.folder(),
              "': ", differences.front(), "; use its model");
  }
  const std::string known = task_->start_from(saved);
  task_->refresh();
  if (leads()) log::info("started from {}: {}", saved.folder(), known);
}

std::string TrainingRun::load_best() {
  const std::string best = checkpoint::best_checkpoint(folder_.checkpoints());
  if (config_.checkpoint.keep_best == 0 || best.empty()) return "";
  const checkpoint::Checkpoint saved = checkpoint::open_named_checkpoint(best);
  if (saved.step() == task_->steps_done()) return "";
  checkpoint::read_tensors(ctx_, saved, task_->weights(), {"model"});
  read_tables(saved, checkpoint::TableParts::kWeights);
  task_->refresh();
  return std::filesystem::path(saved.folder()).filename().string();
}

void TrainingRun::save_if_scored(std::optional<double> score) {
  if (score && config_.checkpoint.keep_best > 0) save(score);
}

void TrainingRun::save(std::optional<double> score) {
  if (last_saved_ == task_->steps_done() && !score) return;
  const TraceScope scope(trace_.get(), train::stages::kSave.name, train::kComputeLane);
  last_saved_ = task_->steps_done();
  task_->settle();
  if (writer_) write_checkpoint(score);
}

void TrainingRun::write_checkpoint(std::optional<double> score) {
  checkpoint::CheckpointContents contents;
  contents.step = task_->steps_done();
  for (const TaskTable& table : task_->tables()) {
    contents.tables.push_back(
        checkpoint::table_contents(table.name, table.part, table.sharding, table.index));
  }
  if (!leads()) return writer_->save(contents);
  contents.shards = {{"model", task_->weights()}, {"optimiser", task_->moments()}};
  for (checkpoint::CheckpointShard& shard : task_->other_shards())
    contents.shards.push_back(std::move(shard));
  contents.state = {{"loader", task_->position().to_json()},
                    {"epoch", epoch_},
                    {"store", events_checksum(store_)},
                    {"vocabularies", vocabularies_of(store_)},
                    {"bad_steps", bad_steps_},
                    {"skipped_steps", skipped_steps_},
                    {"early_stopping", early_stopping_.state()},
                    {"window", window_state(window_, task_->times())},
                    {"metrics", lines_->logged().to_json()}};
  contents.config = config_text(config_);
  contents.command = command_;
  contents.score = score;
  writer_->save(contents);
}

}  // namespace turbogr::run
