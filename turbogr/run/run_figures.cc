// What a run logs, evaluates and traces.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "turbogr/core/log.h"
#include "turbogr/run/timeline.h"
#include "turbogr/run/training_run_class.h"
#include "turbogr/train/stages.h"

namespace turbogr::run {
double TrainingRun::epochs_done() const {
  const data::LoaderState state = task_->position();
  return static_cast<double>(state.epoch) +
         static_cast<double>(state.window) /
             static_cast<double>(std::max<std::int64_t>(state.windows, 1));
}

void TrainingRun::log_window(const train::StepResult& result) {
  const double seconds = std::max(window_.seconds, 1e-9);
  const double was = peak_rate_.tflops();
  if (leads() && peak_rate_.reached(window_.flops.causal / seconds * 1e-12)) {
    log::warn(
        "steps do more than the {:.3g} TFLOP/s that were measured as the peak of MFU: the machine "
        "was busy then; the peak is {:.3g} from here on (train.peak_tflops sets one)",
        was, peak_rate_.tflops());
  }
  const double peak = peak_rate_.tflops() * 1e12 * seconds;
  MetricRecord record;
  record.step = result.step;
  record.epoch = epochs_done();
  const double loss =
      window_.loss_sum / static_cast<double>(std::max<std::int64_t>(window_.predicting, 1));
  const double rate = static_cast<double>(window_.tokens) / seconds;
  record.values = {{"loss", loss},
                   {"lr", result.rate},
                   {"grad_norm", result.gradient_norm},
                   {"tokens_per_s", rate},
                   {"mfu_causal", window_.flops.causal / peak},
                   {"mfu_paper", window_.flops.paper / peak},
                   {"peak_tflops", peak_rate_.tflops()},
                   {"skipped_steps", static_cast<double>(skipped_steps_)}};
  if (task_->ranks().sharded()) {
    const train::StageTimes times = task_->times() - window_.stages;
    record.values.emplace_back("compute_share", times.compute / seconds);
    record.values.emplace_back("exposed_sparse", times.sparse_communication / seconds);
    record.values.emplace_back("exposed_dense", times.dense_communication / seconds);
  }
  write(record);
  if (progress_ != nullptr) {
    progress_->update({.step = record.step,
                       .epoch = record.epoch,
                       .loss = loss,
                       .grad_norm = result.gradient_norm,
                       .lr = result.rate,
                       .tokens_per_s = rate,
                       .mfu_causal = window_.flops.causal / peak});
  }
}

void TrainingRun::begin_window() {
  window_ = {};
  window_.stages = task_->times();
}

void TrainingRun::write(const MetricRecord& record) {
  if (leads()) folder_.check_in_place();
  if (lines_) lines_->write(record);
  if (events_) events_->write(record);
  if (leads() && control_.on_record) control_.on_record(record);
}

std::optional<double> TrainingRun::evaluate_all() {
  const TraceScope scope(trace_.get(), train::stages::kEvaluate.name, train::kComputeLane);
  if (progress_ != nullptr) progress_->pause();
  std::optional<double> score;
  const std::vector<data::Split> splits = held_out(config_);
  for (const data::Split split : splits) {
    if (split == data::Split::kTest && splits.size() > 1 && !finished()) continue;
    // Patience ran out with this step's figure, which is known.
    if (split == data::Split::kValidation && counted_step_ == task_->steps_done()) continue;
    const Evaluation found = task_->evaluate(split);
    MetricRecord record;
    record.step = task_->steps_done();
    record.epoch = epochs_done();
    record.split = std::string(name_of(split));
    record.values = found.figures;
    if (split == data::Split::kValidation) score = score_of(found, config_.eval.metric);
    record.values.insert(record.values.end(), found.counts.begin(), found.counts.end());
    record.calibration = found.calibration;
    write(record);
    if (mllog_ && split == splits.front()) {
      const double auc = score_of(found, "auc").value_or(0);
      mllog_->evaluation(samples_done(), auc);
      best_auc_ = std::max(best_auc_, auc);
    }
    if (!prints()) continue;
    if (progress_ != nullptr) progress_->clear();
    // The targets of a split are the same every time: said once.
    const std::string remark = std::exchange(last_split_, split) == split ? "" : found.remark;
    print_result("{} after {:.2f} epochs, {}:{}\n{}", record.split, record.epoch, found.of,
                 figures_text(found.figures), remark);
  }
  if (progress_ != nullptr) progress_->resume();
  return score;
}

std::optional<double> TrainingRun::evaluate_and_count() {
  const std::optional<double> score = evaluate_all();
  if (!score) return score;
  counted_step_ = task_->steps_done();
  early_stopping_.add(*score);
  if (prints() && early_stopping_.out_of_patience()) {
    log::info("stopping early: {} evaluations in a row were no better than {} {:.4f}",
              early_stopping_.since_best(), config_.eval.metric, std::abs(*early_stopping_.best()));
  }
  return score;
}

void TrainingRun::compare_with_baseline() {
  world_.barrier();  // the last checkpoint is written
  const data::Split split = held_out(config_).back();
  const std::string best = load_best();
  if (!best.empty()) {
    const Evaluation found = task_->evaluate(split);
    if (prints()) {
      print_result("{} of the best checkpoint, {}:{}\n", name_of(split), best,
                   figures_text(found.figures));
    }
  }
  const Task::Baseline baseline = task_->compare(split);
  if (!prints()) return;
  print_result("{}", baseline.lines);
  if (!baseline.warning.empty()) log::warn("{}", baseline.warning);
}

void TrainingRun::write_trace() {
  world_.barrier();
  const std::int64_t now = Trace::now_ns();
  const std::vector<std::int64_t> clocks = world_.all_gather_value(now);
  const std::vector<std::int64_t> starts = world_.all_gather_value(start_ns_);
  const std::string own = trace_->events(clocks[0] - now - starts[0]);
  const std::vector<std::int64_t> sizes =
      world_.all_gather_value(static_cast<std::int64_t>(own.size()));
  std::vector<std::int64_t> out(sizes.size(), 0), in(sizes.size(), 0);
  out[0] = static_cast<std::int64_t>(own.size());
  std::string all;
  if (leads()) {
    in = sizes;
    all.resize(
        static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0})));
  }
  world_.all_to_all({own.data(), out}, {all.data(), in});
  if (!leads()) return;
  std::vector<std::string> events;
  std::size_t at = 0;
  for (const std::int64_t size : sizes) {
    events.push_back(all.substr(at, static_cast<std::size_t>(size)));
    at += static_cast<std::size_t>(size);
  }
  folder_.check_in_place();
  Trace::write_all(folder_.trace(), events);
}

}  // namespace turbogr::run
