// The usage line of commands that take CONFIG.toml and overrides. The parser sees those as extras,
// so it would not mention them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace turbogr::apps {

class ConfigUsage : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* /*app*/, std::string name) const override {
    return "Usage: " + name + " CONFIG.toml [--KEY=VALUE ...] [OPTIONS]\n";
  }
};

}  // namespace turbogr::apps
