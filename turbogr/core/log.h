// Log lines for people, on standard error: "12:00:01 warning  text". Standard output stays free for
// results that programs read.
//
//   log::info("store {} opened, {} users", path, users);
//
// The library behind it (spdlog) is seen by log.cc alone: in a header it costs every source that
// logs seconds of compiling.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <functional>
#include <string_view>

namespace turbogr::log {

// debug, info, warning, error or off; throws on another word. Called once, by main.
void set_up(std::string_view level);

enum class Level : std::uint8_t { kDebug, kInfo, kWarning, kError };

// For a host that has a log of its own: lines of every level go there instead of to standard error,
// from any thread. Called once, before anything is logged.
using Sink = std::function<void(Level, std::string_view line)>;
void set_sink(Sink sink);

// Nothing is formatted when the level is below the one set up.
void write(Level level, fmt::string_view format, fmt::format_args values);

template <class... Values>
void debug(fmt::format_string<Values...> format, Values&&... values) {
  write(Level::kDebug, format, fmt::make_format_args(values...));
}

template <class... Values>
void info(fmt::format_string<Values...> format, Values&&... values) {
  write(Level::kInfo, format, fmt::make_format_args(values...));
}

template <class... Values>
void warn(fmt::format_string<Values...> format, Values&&... values) {
  write(Level::kWarning, format, fmt::make_format_args(values...));
}

template <class... Values>
void error(fmt::format_string<Values...> format, Values&&... values) {
  write(Level::kError, format, fmt::make_format_args(values...));
}

}  // namespace turbogr::log
