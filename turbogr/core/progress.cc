#include "turbogr/core/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "turbogr/core/trace.h"

namespace turbogr {
namespace {

constexpr std::int64_t kRedrawNs = 100'000'000;
constexpr std::int64_t kWidestBar = 24;
constexpr std::int64_t kNarrowestBar = 5;

std::string amount_text(double value, std::string_view unit) {
  const std::string tail = unit == "B" ? "B" : fmt::format(" {}", unit);
  if (value >= 1e9) return fmt::format("{:.1f} G{}", value * 1e-9, tail);
  if (value >= 1e6) return fmt::format("{:.0f} M{}", value * 1e-6, tail);
  if (value >= 1e3) return fmt::format("{:.0f} k{}", value * 1e-3, tail);
  return fmt::format("{:.0f} {}", value, unit);
}

int columns_of(std::FILE* out) {
  winsize size{};
  const bool known = ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

std::string Progress::rate_text(double per_second, std::string_view unit) {
  return amount_text(per_second, unit) + "/s";
}

std::string Progress::text_of(const Line& line, int columns) {
  std::string head = fmt::format("{:<10} ", line.stage);
  std::string tail;
  if (line.share >= 0) tail += fmt::format("{:3.0f} %  ", std::floor(100 * line.share));
  tail += line.figures;
  if (line.seconds_left >= 0) tail += fmt::format("  {} left", duration_text(line.seconds_left));
  // One column stays free: some terminals wrap when the last one is filled.
  const auto used = static_cast<std::int64_t>(head.size() + tail.size());
  const std::int64_t room = std::int64_t{columns} - 1 - used - 3;  // the brackets and a space
  if (line.share >= 0 && room >= kNarrowestBar) {
    const std::int64_t width = std::min(room, kWidestBar);
    const auto full = static_cast<std::int64_t>(line.share * static_cast<double>(width));
    head += fmt::format("[{:<{}}] ", std::string(static_cast<std::size_t>(full), '#'), width);
  }
  return (head + tail).substr(0, static_cast<std::size_t>(std::max(columns - 1, 1)));
}

void Progress::begin(std::string stage, std::int64_t total, std::string unit, std::int64_t first) {
  stage_ = std::move(stage);
  unit_ = std::move(unit);
  total_ = total;
  first_ = first;
  begin_ns_ = Trace::now_ns();
  drawn_ns_ = begin_ns_;
}

double Progress::seconds() const { return static_cast<double>(Trace::now_ns() - begin_ns_) * 1e-9; }

double Progress::seconds_left(std::int64_t done) const {
  if (total_ <= 0 || done <= first_) return -1;
  const auto left = static_cast<double>(std::max<std::int64_t>(total_ - done, 0));
  return seconds() / static_cast<double>(done - first_) * left;
}

void Progress::update(std::int64_t done, std::string_view figures) {
  if (!on_) return;
  const std::int64_t now = Trace::now_ns();
  const bool last = total_ > 0 && done >= total_;
  if (!last && now - drawn_ns_ < kRedrawNs) return;
  drawn_ns_ = now;
  drawn_ = true;
  std::string rate;
  if (figures.empty()) {
    const double per_second = static_cast<double>(done - first_) / std::max(seconds(), 1e-9);
    if (total_ <= 0) rate = amount_text(static_cast<double>(done), unit_) + "  ";
    figures = rate += rate_text(per_second, unit_);
  }
  const double share =
      total_ > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(total_), 0.0, 1.0)
                 : -1;
  const std::string text = text_of({stage_, figures, share, seconds_left(done)}, columns_of(out_));
  print_text(out_, fmt::format("\r{}\033[K", text));
}

void Progress::clear() {
  if (drawn_) print_text(out_, "\r\033[K");
  drawn_ = false;
}

void Progress::leave() {
  if (drawn_) print_text(out_, "\n");
  drawn_ = false;
}

void Progress::pause() { paused_ns_ = Trace::now_ns(); }

void Progress::resume() { begin_ns_ += Trace::now_ns() - paused_ns_; }

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

}  // namespace turbogr
