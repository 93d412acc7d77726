#include "turbogr/run/run_records.h"

#include <algorithm>
#include <utility>

namespace turbogr::run {

RunRecords::RunRecords(const RunFolder& folder, const Config& config, RunRecordsOptions options)
    : folder_(folder), on_record_(std::move(options.on_record)) {
  folder.check_in_place();
  write_run_config(folder, config);
  lines_ = std::make_unique<JsonLines>(folder.metrics(), options.resumed, options.logged);
  if (config.log.tensorboard) {
    events_ = std::make_unique<TensorBoardEvents>(folder.tensorboard(), options.resumed);
  }
  if (options.mllog) {
    const bool begun = options.resumed.value_or(0) > 0;
    mllog_ = std::make_unique<MlLog>(folder.mllog(), begun);
    if (!begun) {
      mllog_->begin(*options.mllog);
      mllog_->start();
    }
  }
}

void RunRecords::write(const MetricRecord& record) {
  folder_.check_in_place();
  lines_->write(record);
  if (events_) events_->write(record);
  if (on_record_) on_record_(record);
}

void RunRecords::evaluated(std::int64_t samples, double auc) {
  if (!mllog_) return;
  mllog_->evaluation(samples, auc);
  best_auc_ = std::max(best_auc_, auc);
}

void RunRecords::ended(std::int64_t samples) {
  if (mllog_) mllog_->stop(samples, best_auc_ >= kMlLogTarget);
}

}  // namespace turbogr::run
