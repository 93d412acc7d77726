// What a person watching a run sees: a live bar on a terminal, elsewhere one line of fixed columns
// every so often.
//
//   TrainingProgress progress(stderr, TrainingProgress::choose(config.log.progress, stderr),
//   steps); progress.update({.step = 120, .loss = 2.3148, ...});
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "turbogr/core/progress.h"

namespace turbogr::run {

struct TrainingFigures {
  std::int64_t step = 0;  // done so far
  double epoch = 0.0;
  double loss = 0.0;
  double grad_norm = 0.0;
  double lr = 0.0;
  double tokens_per_s = 0.0;
  double mfu_causal = 0.0;  // a share: 0.38 is shown as 38.0%
};

class TrainingProgress {
 public:
  enum class Style { kNone, kLines, kBar };

  // auto, bar, lines or none, as log.progress has it; auto is a bar when `out` is a terminal.
  static Style choose(std::string_view word, std::FILE* out);

  // first_step: where a resumed run starts; total_steps 0: not known, so no time left is shown.
  TrainingProgress(std::FILE* out, Style style, std::int64_t total_steps,
                   std::int64_t first_step = 0);
  ~TrainingProgress() { bar_.leave(); }  // the last bar stands on a line of its own
  TrainingProgress(const TrainingProgress&) = delete;
  TrainingProgress& operator=(const TrainingProgress&) = delete;

  // A bar may be told of every step; lines are printed at each call, so the caller chooses how
  // often (log.every).
  void update(const TrainingFigures& figures);
  // Takes the bar away so that something else can be printed; the next update brings it back.
  void clear() { bar_.clear(); }
  // Time that is not training (evaluation, a save) must not count into the time left.
  void pause() { bar_.pause(); }
  void resume() { bar_.resume(); }

 private:
  std::FILE* out_;
  Style style_;
  std::int64_t total_steps_;
  Progress bar_;
};

// The pieces, for tests. `seconds_left` below 0: not known.
std::string training_line(const TrainingFigures& figures, std::int64_t total_steps,
                          double seconds_left);
std::string bar_figures(const TrainingFigures& figures, std::int64_t total_steps);

}  // namespace turbogr::run
