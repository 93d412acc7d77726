// What a run saves, goes on from and starts from.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/train/checkpoint.h"
#include "turbogr/train/device_tensors.h"
#include "turbogr/train/stages.h"
#include "turbogr/train/trained_model.h"
#include "turbogr/train/training_run_class.h"

namespace turbogr::train {

template <class T>
std::int64_t TrainingRun<T>::resume() {
  // Killed before its first checkpoint: nothing is lost by beginning again.
  if (list_checkpoints(folder_.checkpoints()).empty() &&
      std::filesystem::exists(folder_.config())) {
    log::info("'{}' has no checkpoint yet; starting from the beginning", folder_.path);
    return 0;
  }
  const Checkpoint saved =
      open_newest_checkpoint(folder_.checkpoints(), config_.checkpoint.fall_back);
  const Config was = parse_config(saved.config(), saved.folder() + "/config.toml");
  for (const char* section : {"model.", "data.holdout", "data.max_length", "data.history",
                              "data.shuffle", "train.dtype", "run.seed"}) {
    const std::vector<std::string> differences = config_differences(was, config_, section);
    TGR_CHECK(differences.empty(), "cannot go on from checkpoint '", saved.folder(),
              "': ", differences.front(), "; a resumed run keeps its model and data");
  }
  check_item_names(saved, store_);
  make_whole_table();
  read_tensors(ctx_, saved, trainer_->model_tensors(), {"model"});
  read_tensors(ctx_, saved, trainer_->optimiser_tensors(), {"optimiser"});
  share_whole_table();
  trainer_->set_steps_done(saved.step());
  trainer_->refresh(ctx_);
  loader_.restore(data::LoaderState::from_json(saved.state().at("loader").get<std::string>()));
  epoch_ = saved.state().at("epoch").get<std::int64_t>();
  early_stopping_.restore(saved.state().value("early_stopping", nlohmann::json::object()));
  last_saved_ = saved.step();  // saving it again without its score would lose that
  if (leads()) log::info("resumed from {} at step {}", saved.folder(), saved.step());
  return saved.step();
}

template <class T>
void TrainingRun<T>::make_whole_table() {
  if (!pipeline_) return;
  trainer_->table() = embedding::ItemTable(store_.num_items(), config_.model.width,
                                           trainer_->options().table_optimiser);
}

template <class T>
void TrainingRun<T>::share_whole_table() {
  if (!pipeline_) return;
  pipeline_->take_whole();
  pipeline_->dismiss();
}

template <class T>
void TrainingRun<T>::start_from() {
  const Checkpoint saved = open_checkpoint(config_.run.start_from, Pick::kNewest);
  const Config was = parse_config(saved.config(), saved.folder() + "/config.toml");
  const std::vector<std::string> differences = config_differences(was, config_, "model.");
  TGR_CHECK(differences.empty(), "cannot start from checkpoint '", saved.folder(),
            "': ", differences.front(), "; use its model");
  std::vector<NamedTensor> dense = trainer_->model_tensors();
  dense.erase(dense.begin());  // the item table is matched by item below
  read_tensors(ctx_, saved, dense);
  if (pipeline_) {
    make_whole_table();
    trainer_->table().initialise(ctx_.host(), trainer_->options().seed,
                                 trainer_->options().table_scale);
  }
  const std::int64_t known =
      read_known_rows(ctx_, saved, store_, trainer_->table().weight_tensor());
  share_whole_table();
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
  make_whole_table();
  read_tensors(ctx_, saved, trainer_->model_tensors(), {"model"});
  share_whole_table();
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
  if (pipeline_) pipeline_->assemble(/*everywhere=*/false);
  if (leads()) write_checkpoint(score);
  if (pipeline_) pipeline_->dismiss();
}

template <class T>
void TrainingRun<T>::write_checkpoint(std::optional<double> score) {
  CheckpointContents contents;
  contents.step = trainer_->steps_done();
  contents.shards = {{"model", trainer_->model_tensors()},
                     {"optimiser", trainer_->optimiser_tensors()},
                     {"item_names", names_.tensors(store_)}};
  contents.state = {{"loader", loader_.state().to_json()}, {"epoch", epoch_}};
  contents.state["early_stopping"] = early_stopping_.state();
  contents.config = config_text(config_);
  contents.command = command_;
  contents.score = score;
  writer_->save(contents);
}

template class TrainingRun<float>;
template class TrainingRun<bf16>;

}  // namespace turbogr::train
