// Figures a run leaves behind: metrics.jsonl for programs, TensorBoard events for people who have
// it open. Both are flushed line by line, so a crash loses nothing that was written.
//
//   JsonLines lines("runs/demo/metrics.jsonl", /*resume_step=*/std::nullopt);
//   lines.write({.step = 20, .epoch = 0.5, .values = {{"loss", 2.31}, {"lr", 1e-3}}});
//   lines.write({.step = 40, .epoch = 1, .split = "validation", .values = {{"hr@10", 0.28}}});
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "turbogr/core/file.h"
#include "turbogr/run/calibration.h"

namespace turbogr::run {

struct MetricRecord {
  std::int64_t step = 0;
  double epoch = 0.0;
  std::string split;  // of an evaluation: validation, test; empty for training
  std::vector<std::pair<std::string, double>> values;
  std::vector<TaskCalibration> calibration;  // of an evaluation of the ranking task
  std::string note;  // what a reader of the figures must know; there are none beside it
};

class MetricSink {
 public:
  virtual ~MetricSink() = default;
  virtual void write(const MetricRecord& record) = 0;
};

// How a metrics.jsonl began when a checkpoint was saved: bytes that are lost since are noticed.
struct LoggedBytes {
  std::uint64_t bytes = 0;
  std::uint32_t sum = 0;  // CRC-32C

  bool are_in(std::string_view text) const;  // at its beginning
  nlohmann::json to_json() const;
  // From the state of a checkpoint; nothing from that of an older program.
  static std::optional<LoggedBytes> of(const nlohmann::json& state);
};

// One JSON object a line: step, epoch, split (evaluations only), then the values in order. A
// non-finite value is null, as JSON has none.
class JsonLines : public MetricSink {
 public:
  // A new run wants no file or an empty one. A resumed run goes on after `resume_step`: a torn last
  // line and what a killed run logged past that step are cut off, since they will come again. What
  // it logged of that step stays and is not written twice: an evaluation may come again too.
  // `logged`: what it had written when its checkpoint was saved. Where that is not there any more,
  // a warning and a line with a note say so.
  JsonLines(std::string path, std::optional<std::int64_t> resume_step,
            std::optional<LoggedBytes> logged = std::nullopt);

  // A file that was removed or cut meanwhile is begun again, with the same warning and note.
  void write(const MetricRecord& record) override;

  LoggedBytes logged() const { return logged_; }

 private:
  void open();
  void append(const std::string& line);
  void say_lost(std::int64_t step, const char* when);

  std::string path_;
  std::set<std::string> kept_;  // lines of the step resumed from
  FileHandle file_;
  LoggedBytes logged_;
};

// The records of a metrics.jsonl, in order. A line that is no record of this kind is left out;
// `skipped` counts them. Keys with other values than numbers are ignored.
std::vector<MetricRecord> read_json_lines(const std::string& path, std::int64_t* skipped = nullptr);

// An event file of scalar summaries. Tags are train/loss, validation/hr@10 and so on.
class TensorBoardEvents : public MetricSink {
 public:
  // Opens a new file in the folder. On resume TensorBoard is told to forget what came after
  // `resume_step` in earlier files.
  TensorBoardEvents(const std::string& folder, std::optional<std::int64_t> resume_step);
  ~TensorBoardEvents() override;
  TensorBoardEvents(const TensorBoardEvents&) = delete;
  TensorBoardEvents& operator=(const TensorBoardEvents&) = delete;

  void write(const MetricRecord& record) override;

  const std::string& path() const { return path_; }

 private:
  void append(const std::string& event);

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace turbogr::run
