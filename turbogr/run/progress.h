// What a person watching sees: a live bar on a terminal, elsewhere one line of fixed columns every
// so often.
//
//   Progress progress(stderr, Progress::choose(config.log.progress, stderr), total_steps);
//   progress.update({.step = 120, .loss = 2.3148, ...});
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace turbogr {

// Writes and flushes. That nobody reads any more is no exception here, so that a run can save
// before it ends: SIGPIPE tells it (data/interrupt.h), and main reports what never got out.
void print_text(std::FILE* out, std::string_view text);

template <class... Args>
void print_result(fmt::format_string<Args...> format, Args&&... args) {
  print_text(stdout, fmt::format(format, std::forward<Args>(args)...));
}

struct ProgressFigures {
  std::int64_t step = 0;  // done so far
  double epoch = 0.0;
  double loss = 0.0;
  double grad_norm = 0.0;
  double lr = 0.0;
  double tokens_per_s = 0.0;
  double mfu_causal = 0.0;  // a share: 0.38 is shown as 38.0%
};

class Progress {
 public:
  enum class Style { kNone, kLines, kBar };

  // auto, bar, lines or none, as log.progress has it; auto is a bar when `out` is a terminal.
  static Style choose(std::string_view word, std::FILE* out);

  // first_step: where a resumed run starts; total_steps 0: not known, so no time left is shown.
  Progress(std::FILE* out, Style style, std::int64_t total_steps, std::int64_t first_step = 0);
  ~Progress();  // leaves the last bar standing on a line of its own
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // A bar may be told of every step and redraws ten times a second at most; lines are printed at
  // each call, so the caller chooses how often (log.every).
  void update(const ProgressFigures& figures);
  // Takes the bar away so that something else can be printed; the next update brings it back.
  void clear();
  // Time that is not training (evaluation, a save) must not count into the time left.
  void pause();
  void resume();

 private:
  std::FILE* out_;
  Style style_;
  std::int64_t total_steps_;
  std::int64_t first_step_;
  double started_;
  double paused_at_ = 0.0;
  double drawn_at_ = -1.0;
  std::string bar_;  // as it stands on the terminal; empty when it is cleared
};

// The pieces, for tests. `seconds_left` below 0: not known.
std::string progress_line(const ProgressFigures& figures, std::int64_t total_steps,
                          double seconds_left);
std::string progress_bar(const ProgressFigures& figures, std::int64_t total_steps,
                         double seconds_left, int columns);
std::string duration_text(double seconds);      // 0:07, 12:30, 3:05:09, 2d 04:00
std::string grouped_text(std::int64_t number);  // 98,304

}  // namespace turbogr
