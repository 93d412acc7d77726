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
#include "turbogr/eval/seen_items.h"
#include "turbogr/run/seen_rule.h"
#include "turbogr/run/trained_model.h"
#include "turbogr/run/training_run_class.h"
#include "turbogr/train/stages.h"

namespace turbogr::train {
namespace {

using nlohmann::json;

// The figures of steps that no line has yet: the first line after a resume counts them, too.
json window_state(const Window& window, const StageTimes& stages) {
  const StageTimes since = stages - window.stages;
  return {{"loss_sum", window.loss_sum},
          {"predicting", window.predicting},
          {"tokens", window.tokens},
          {"seconds", window.seconds},
          {"flops", {window.flops.causal, window.flops.paper}},
          {"stages", {since.compute, since.dense_communication, since.sparse_communication}}};
}

[[noreturn]] void refuse_state(const Checkpoint& saved) {
  detail::throw_error("checkpoint '", saved.folder(),
                      "': its state.json does not say where the run stood (loader, epoch, window) "
                      "as this program writes it; go on from another checkpoint");
}

std::int64_t count_of(const json& value, const Checkpoint& saved) {
  const auto count = value.is_number_integer() ? value.get<std::int64_t>() : -1;
  if (count < 0) refuse_state(saved);
  return count;
}

// A number that is not finite is null in JSON.
double number_of(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

Window window_from(const json& state, const Checkpoint& saved) {
  Window window;
  window.loss_sum = number_of(state.at("loss_sum"));
  window.predicting = count_of(state.at("predicting"), saved);
  window.tokens = count_of(state.at("tokens"), saved);
  window.seconds = state.at("seconds").get<double>();
  window.flops = {state.at("flops").at(0).get<double>(), state.at("flops").at(1).get<double>()};
  const json& stages = state.at("stages");
  // The clocks of a new trainer begin at zero.
  window.stages = StageTimes{} - StageTimes{stages.at(0).get<double>(), stages.at(1).get<double>(),
                                            stages.at(2).get<double>()};
  return window;
}

// A run that was killed before its first checkpoint loses nothing by beginning again; one whose
// checkpoints are gone loses what it has logged.
void check_beginning_again(const RunFolder& folder, bool start_over) {
  std::error_code absent;
  const bool logged = std::filesystem::file_size(folder.metrics(), absent) > 0 && !absent;
  TGR_CHECK(!logged || start_over || never_saved(folder.checkpoints()), "the run in '", folder.path,
            "' has logged figures, and its checkpoints are gone from '", folder.checkpoints(),
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

void check_same_events(const Checkpoint& saved, const data::Store& store) {
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

template <class T>
std::optional<std::int64_t> TrainingRun<T>::resume() {
  const bool start_over = std::exchange(config_.run.start_over, false);  // this once
  if (list_checkpoints(folder_.checkpoints()).empty() &&
      std::filesystem::exists(folder_.config())) {
    check_beginning_again(folder_, start_over);
    if (leads()) {
      log::info("'{}' has no checkpoint{}; starting from the beginning", folder_.path,
                start_over ? "" : " yet");
    }
    return std::nullopt;
  }
  const Checkpoint saved =
      open_newest_checkpoint(world_, folder_.checkpoints(), config_.checkpoint.fall_back);
  const Config was = parse_config(saved.config(), saved.folder() + "/config.toml");
  for (const char* section : {"model.", "data.holdout", "data.max_length", "data.history",
                              "data.shuffle", "train.dtype", "run.seed"}) {
    const std::vector<std::string> differences = config_differences(was, config_, section);
    TGR_CHECK(differences.empty(), "cannot go on from checkpoint '", saved.folder(),
              "': ", differences.front(), "; a resumed run keeps its model and data");
  }
  const std::string seen = check_same_seen(was, config_);
  if (leads() && !seen.empty()) log::warn("{}", seen);
  check_item_names(saved, store_);
  check_same_events(saved, store_);
  names_.add_trained(saved, store_);
  read_tensors(ctx_, saved, trainer_->model_tensors(), {"model"});
  read_tensors(ctx_, saved, trainer_->optimiser_tensors(), {"optimiser"});
  read_item_table(saved, TableParts::kAll);
  trainer_->set_steps_done(saved.step());
  trainer_->refresh(ctx_);
  try {
    const json& state = saved.state();
    loader_.restore(data::LoaderState::from_json(state.at("loader").get<std::string>()));
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

template <class T>
void TrainingRun<T>::read_item_table(const Checkpoint& saved, TableParts wanted) {
  embedding::RowSource<T>& rows = trainer_->rows();
  read_table(ctx_, saved, "items", wanted, rows.sharding(0), rows.shard_index(), rows.shard(0));
}

template <class T>
void TrainingRun<T>::start_from() {
  const Checkpoint saved = open_checkpoint(config_.run.start_from, Pick::kNewest);
  const Config was = parse_config(saved.config(), saved.folder() + "/config.toml");
  const std::vector<std::string> differences = config_differences(was, config_, "model.");
  TGR_CHECK(differences.empty(), "cannot start from checkpoint '", saved.folder(),
            "': ", differences.front(), "; use its model");
  read_tensors(ctx_, saved, trainer_->model_tensors());
  names_.add_trained(saved, store_);
  embedding::RowSource<T>& rows = trainer_->rows();
  const std::int64_t known =
      read_known_rows(ctx_, saved, store_, rows.sharding(0), rows.shard_index(), rows.shard(0));
  trainer_->refresh(ctx_);
  if (leads())
    log::info("started from {}: {} of {} items known, the others new", saved.folder(), known,
              store_.num_items());
}

template <class T>
std::string TrainingRun<T>::load_best() {
  const std::string best = best_checkpoint(folder_.checkpoints());
  if (config_.checkpoint.keep_best == 0 || best.empty()) return "";
  const Checkpoint saved = open_named_checkpoint(best);
  if (saved.step() == trainer_->steps_done()) return "";
  read_tensors(ctx_, saved, trainer_->model_tensors(), {"model"});
  read_item_table(saved, TableParts::kWeights);
  trainer_->refresh(ctx_);
  return std::filesystem::path(saved.folder()).filename().string();
}

template <class T>
void TrainingRun<T>::save_if_scored(std::optional<double> score) {
  if (score && config_.checkpoint.keep_best > 0) save(score);
}

template <class T>
void TrainingRun<T>::save(std::optional<double> score) {
  if (last_saved_ == trainer_->steps_done() && !score) return;
  const TraceScope scope(trace_.get(), stages::kSave.name, kComputeLane);
  last_saved_ = trainer_->steps_done();
  trainer_->rows().settle(ctx_);
  if (writer_) write_checkpoint(score);
}

template <class T>
void TrainingRun<T>::write_checkpoint(std::optional<double> score) {
  CheckpointContents contents;
  contents.step = trainer_->steps_done();
  embedding::RowSource<T>& rows = trainer_->rows();
  contents.tables = {table_contents("items", rows.shard(0), rows.sharding(0), rows.shard_index())};
  if (!leads()) return writer_->save(contents);
  contents.shards = {{"model", trainer_->model_tensors()},
                     {"optimiser", trainer_->optimiser_tensors()},
                     {"item_names", names_.tensors(config_, store_)}};
  contents.state = {{"loader", loader_.state().to_json()},
                    {"epoch", epoch_},
                    {"store", events_checksum(store_)},
                    {"bad_steps", bad_steps_},
                    {"skipped_steps", skipped_steps_},
                    {"early_stopping", early_stopping_.state()},
                    {"window", window_state(window_, trainer_->times())},
                    {"metrics", lines_->logged().to_json()}};
  contents.config = config_text(config_);
  contents.command = command_;
  contents.score = score;
  writer_->save(contents);
}

template class TrainingRun<float>;
template class TrainingRun<bf16>;

}  // namespace turbogr::train
