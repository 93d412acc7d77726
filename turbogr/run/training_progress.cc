#include "turbogr/run/training_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>

#include "turbogr/core/check.h"

namespace turbogr::run {

std::string training_line(const TrainingFigures& figures, std::int64_t total_steps,
                          double seconds_left) {
  const std::string total = total_steps > 0 ? fmt::format("/{}", total_steps) : "";
  std::string line = fmt::format(
      "step {:>7}{:<8} epoch {:>7.2f}   loss {:>8.4f}   norm {:>8.3g}   lr {:>8.2e}   {:>11} tok/s "
      "  "
      "mfu {:>5.1f}%",
      figures.step, total, figures.epoch, figures.loss, figures.grad_norm, figures.lr,
      grouped_text(std::llround(figures.tokens_per_s)), 100.0 * figures.mfu_causal);
  if (seconds_left >= 0.0) line += fmt::format("   left {:>8}", duration_text(seconds_left));
  return line;
}

std::string bar_figures(const TrainingFigures& figures, std::int64_t total_steps) {
  return fmt::format("{}{}  loss {:.4f}  {} tok/s  mfu {:.1f}%", figures.step,
                     total_steps > 0 ? fmt::format("/{}", total_steps) : "", figures.loss,
                     grouped_text(std::llround(figures.tokens_per_s)), 100.0 * figures.mfu_causal);
}

TrainingProgress::Style TrainingProgress::choose(std::string_view word, std::FILE* out) {
  if (word == "bar") return Style::kBar;
  if (word == "lines") return Style::kLines;
  if (word == "none") return Style::kNone;
  TGR_CHECK(word == "auto", "unknown progress '", word, "'; use auto, bar, lines or none");
  return ::isatty(::fileno(out)) != 0 ? Style::kBar : Style::kLines;
}

TrainingProgress::TrainingProgress(std::FILE* out, Style style, std::int64_t total_steps,
                                   std::int64_t first_step)
    : out_(out), style_(style), total_steps_(total_steps), bar_(style == Style::kBar, out) {
  bar_.begin("training", total_steps, "steps", first_step);
}

void TrainingProgress::update(const TrainingFigures& figures) {
  if (style_ == Style::kBar) bar_.update(figures.step, bar_figures(figures, total_steps_));
  if (style_ != Style::kLines) return;
  const double left = bar_.seconds_left(figures.step);
  print_text(out_, training_line(figures, total_steps_, left) + "\n");
}

}  // namespace turbogr::run
