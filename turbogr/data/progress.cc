#include "turbogr/data/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "turbogr/core/trace.h"

namespace turbogr::data {
namespace {

std::string amount(double value, const std::string& unit) {
  const std::string tail = unit == "B" ? "B" : " " + unit;
  if (value >= 1e9) return fmt::format("{:.1f} G{}", value * 1e-9, tail);
  if (value >= 1e6) return fmt::format("{:.0f} M{}", value * 1e-6, tail);
  if (value >= 1e3) return fmt::format("{:.0f} k{}", value * 1e-3, tail);
  return fmt::format("{:.0f} {}", value, unit);
}

}  // namespace

std::string Progress::line(const std::string& stage, std::int64_t done, std::int64_t total,
                           const std::string& unit, double seconds) {
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  const std::string speed = amount(rate, unit) + "/s";
  if (total <= 0) {
    return fmt::format("{:<10} {}  {}", stage, amount(static_cast<double>(done), unit), speed);
  }
  constexpr int kWidth = 24;
  const double share = std::min(static_cast<double>(done) / static_cast<double>(total), 1.0);
  const int full = static_cast<int>(share * kWidth);
  const auto left =
      static_cast<std::int64_t>(rate > 0 ? static_cast<double>(total - done) / rate + 0.5 : 0);
  return fmt::format("{:<10} [{:<{}}] {:3.0f} %  {}  {}:{:02} left", stage,
                     std::string(static_cast<std::size_t>(full), '#'), kWidth, share * 100, speed,
                     left / 60, left % 60);
}

void Progress::begin(std::string stage, std::int64_t total, std::string unit) {
  stage_ = std::move(stage);
  unit_ = std::move(unit);
  total_ = total;
  begin_ns_ = Trace::now_ns();
  drawn_ns_ = begin_ns_;
}

void Progress::update(std::int64_t done) {
  if (!on_) return;
  const std::int64_t now = Trace::now_ns();
  if (now - drawn_ns_ < 100'000'000) return;
  drawn_ns_ = now;
  drawn_ = true;
  fmt::print(stderr, "\r{}\033[K",
             line(stage_, done, total_, unit_, static_cast<double>(now - begin_ns_) * 1e-9));
  std::fflush(stderr);
}

void Progress::clear() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
  drawn_ = false;
}

}  // namespace turbogr::data
