#include "turbogr/core/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/escape.h"

namespace turbogr::log {
namespace {

spdlog::level::level_enum spdlog_level(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    default:
      return spdlog::level::err;
  }
}

Sink host_sink;  // of a process, like the logger it stands in for

}  // namespace

void set_sink(Sink sink) { host_sink = std::move(sink); }

void write(Level level, fmt::string_view format, fmt::format_args values) {
  if (host_sink) {
    host_sink(level, escaped(fmt::vformat(format, values), "\\\n"));
    return;
  }
  spdlog::logger& logger = *spdlog::default_logger_raw();
  const spdlog::level::level_enum at = spdlog_level(level);
  if (!logger.should_log(at)) return;
  // Lines name ids and paths, which may hold what a terminal would obey.
  logger.log(at, escaped(fmt::vformat(format, values), "\\\n"));
}

void set_up(std::string_view level) {
  static constexpr std::string_view kLevels[] = {"debug", "info", "warning", "error", "off"};
  bool known = false;
  for (const std::string_view name : kLevels) known = known || name == level;
  TGR_CHECK(known, "unknown log level '", level, "'; use debug, info, warning, error or off");

  auto logger = std::make_shared<spdlog::logger>(
      "turbogr", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("%H:%M:%S %^%-7l%$ %v");
  logger->set_level(spdlog::level::from_str(std::string(level)));
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace turbogr::log
