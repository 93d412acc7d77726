// What a run leaves behind as it goes, for people and programs: metrics.jsonl, TensorBoard's
// events, a benchmark's log, and a word to whoever asked for it. Rank 0's alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "turbogr/run/config.h"
#include "turbogr/run/metrics.h"
#include "turbogr/run/mllog.h"
#include "turbogr/run/run_folder.h"

namespace turbogr::run {

struct RunRecordsOptions {
  std::optional<std::int64_t> resumed;  // the step a run with run.resume goes on from, or 0
  std::optional<LoggedBytes> logged;    // before that step
  std::optional<MlLogFacts> mllog;      // with run.mllog
  std::function<void(const MetricRecord&)> on_record;
};

class RunRecords {
 public:
  // Writes the run's config, too. The folder outlives it.
  RunRecords(const RunFolder& folder, const Config& config, RunRecordsOptions options);

  void write(const MetricRecord& record);
  LoggedBytes logged() const { return lines_->logged(); }

  // For the benchmark's log, after so many samples.
  void evaluated(std::int64_t samples, double auc);
  void ended(std::int64_t samples);

 private:
  const RunFolder& folder_;
  std::unique_ptr<JsonLines> lines_;
  std::unique_ptr<TensorBoardEvents> events_;
  std::unique_ptr<MlLog> mllog_;
  double best_auc_ = 0;
  std::function<void(const MetricRecord&)> on_record_;
};

}  // namespace turbogr::run
