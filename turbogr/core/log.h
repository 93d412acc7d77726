// Log lines for people, on standard error, through spdlog: "12:00:01 warning  text". Standard
// output stays free for results that programs read.
//
//   log::info("store {} opened, {} users", path, users);
#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

namespace turbogr::log {

// debug, info, warning, error or off; throws on another word. Called once, by main.
void set_up(std::string_view level);

using spdlog::debug;
using spdlog::error;
using spdlog::info;
using spdlog::warn;

}  // namespace turbogr::log
