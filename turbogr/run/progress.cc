#include "turbogr/run/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "turbogr/core/check.h"
#include "turbogr/core/trace.h"

namespace turbogr {
namespace {

constexpr double kRedrawSeconds = 0.1;

double now_seconds() { return static_cast<double>(Trace::now_ns()) * 1e-9; }

int columns_of(std::FILE* out) {
  winsize size{};
  const bool known = ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

void print_text(std::FILE* out, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  const std::int64_t days = whole / 86400;
  const std::int64_t hours = whole / 3600 % 24;
  const std::int64_t minutes = whole / 60 % 60;
  if (days > 0) return fmt::format("{}d {:02}:{:02}", days, hours, minutes);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

std::string grouped_text(std::int64_t number) {
  std::string text = fmt::format("{}", number);
  const std::size_t first = number < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > first + 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

std::string progress_line(const ProgressFigures& figures, std::int64_t total_steps,
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

std::string progress_bar(const ProgressFigures& figures, std::int64_t total_steps,
                         double seconds_left, int columns) {
  const double share =
      total_steps > 0
          ? std::clamp(static_cast<double>(figures.step) / static_cast<double>(total_steps), 0.0,
                       1.0)
          : 0.0;
  std::string head;
  if (total_steps > 0) head = fmt::format("{:>3.0f}% ", std::floor(100.0 * share));
  std::string tail =
      fmt::format(" {}{}  loss {:.4f}  {} tok/s  mfu {:.1f}%", figures.step,
                  total_steps > 0 ? fmt::format("/{}", total_steps) : "", figures.loss,
                  grouped_text(std::llround(figures.tokens_per_s)), 100.0 * figures.mfu_causal);
  if (seconds_left >= 0.0) tail += fmt::format("  left {}", duration_text(seconds_left));
  // One column stays free: some terminals wrap when the last one is filled.
  const auto room = static_cast<std::int64_t>(columns) - 1 -
                    static_cast<std::int64_t>(head.size() + tail.size()) - 2;
  if (total_steps > 0 && room >= 5) {
    const std::int64_t width = std::min<std::int64_t>(room, 40);
    const auto full = static_cast<std::int64_t>(share * static_cast<double>(width));
    head += fmt::format("[{}{}]", std::string(static_cast<std::size_t>(full), '#'),
                        std::string(static_cast<std::size_t>(width - full), '.'));
  }
  return (head + tail).substr(0, static_cast<std::size_t>(std::max(columns - 1, 1)));
}

Progress::Style Progress::choose(std::string_view word, std::FILE* out) {
  if (word == "bar") return Style::kBar;
  if (word == "lines") return Style::kLines;
  if (word == "none") return Style::kNone;
  TGR_CHECK(word == "auto", "unknown progress '", word, "'; use auto, bar, lines or none");
  return ::isatty(::fileno(out)) != 0 ? Style::kBar : Style::kLines;
}

Progress::Progress(std::FILE* out, Style style, std::int64_t total_steps, std::int64_t first_step)
    : out_(out),
      style_(style),
      total_steps_(total_steps),
      first_step_(first_step),
      started_(now_seconds()) {}

Progress::~Progress() {
  if (!bar_.empty()) {
    print_text(out_, "\n");
  }
}

void Progress::update(const ProgressFigures& figures) {
  if (style_ == Style::kNone) return;
  const double now = now_seconds();
  const bool last = total_steps_ > 0 && figures.step >= total_steps_;
  if (style_ == Style::kBar && !last && drawn_at_ >= 0.0 && now - drawn_at_ < kRedrawSeconds)
    return;
  const std::int64_t done = figures.step - first_step_;
  const bool known = total_steps_ > 0 && done > 0;
  const double left =
      known ? (now - started_) / static_cast<double>(done) *
                  static_cast<double>(std::max<std::int64_t>(total_steps_ - figures.step, 0))
            : -1.0;
  if (style_ == Style::kLines) {
    print_text(out_, progress_line(figures, total_steps_, left) + "\n");
  } else {
    bar_ = progress_bar(figures, total_steps_, left, columns_of(out_));
    print_text(out_, fmt::format("\r{}\x1b[K", bar_));
    drawn_at_ = now;
  }
}

void Progress::clear() {
  if (bar_.empty()) return;
  print_text(out_, "\r\x1b[K");
  bar_.clear();
  drawn_at_ = -1.0;
}

void Progress::pause() { paused_at_ = now_seconds(); }

void Progress::resume() { started_ += now_seconds() - paused_at_; }

}  // namespace turbogr
