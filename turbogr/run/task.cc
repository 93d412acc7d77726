#include "turbogr/run/task.h"

#include <fmt/format.h>

#include <algorithm>

#include "turbogr/core/device_memory.h"
#include "turbogr/core/host_memory.h"

namespace turbogr::run {

// A library that finds no memory ends the process without a word.
dist::LinkChoice choose_link(const TaskParts& parts) {
  const Config& config = parts.config;
  const bool several = parts.world.size() > 1 || config.dist.link != "auto";
  if (config.run.dry_run || parts.ctx.device() != Device::kCuda || !several) return {};
  return dist::choose_link(parts.world, config.dist.link, device_id());
}

std::vector<std::int64_t> first_users(const std::vector<std::int64_t>& users) {
  constexpr std::ptrdiff_t kMost = 5;
  return {users.begin(), users.begin() + std::min(std::ssize(users), kMost)};
}

void check_room_to_work() {
  constexpr std::size_t kRoom = std::size_t{48} << 20;
  if (detail::host_has(kRoom)) return;
  throw OutOfMemory(
      fmt::format("out of memory on cpu: of {:.1f} MiB that are free beside the plan, "
                  "{} MiB are wanted for threads, code and files",
                  static_cast<double>(available_host_memory()) / (1 << 20), kRoom >> 20));
}

bool less_is_better(const std::string& metric) {
  const std::string figure = metric.substr(metric.rfind('.') + 1);
  return figure == "ne" || figure == "mse" || figure == "mae";
}

std::optional<double> score_of(const Evaluation& evaluation, const std::string& metric) {
  const auto found = std::find_if(evaluation.figures.begin(), evaluation.figures.end(),
                                  [&](const auto& figure) { return figure.first == metric; });
  if (found == evaluation.figures.end()) return std::nullopt;
  return less_is_better(metric) ? -found->second : found->second;
}

std::string figures_text(const std::vector<std::pair<std::string, double>>& figures) {
  std::string text;
  for (const auto& [name, value] : figures) text += fmt::format("  {} {:.4f}", name, value);
  return text;
}

}  // namespace turbogr::run
