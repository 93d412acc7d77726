#include "apps/config_arguments.h"

#include <algorithm>
#include <string>
#include <vector>

#include "turbogr/core/nearest_name.h"
#include "turbogr/run/config_keys.h"

namespace turbogr::apps {

run::ConfigArguments config_arguments(const Command& command) {
  std::vector<std::string> options;
  for (const Command::OptionText& option : command.options()) {
    options.insert(options.end(), option.names.begin(), option.names.end());
  }
  for (const std::string& word : command.remaining()) {
    const std::string name = word.substr(0, word.find('='));
    if (!name.starts_with("--") || name.find('.') != std::string::npos) continue;
    const std::vector<run::ConfigKey>& keys = run::config_keys();
    const bool is_key = std::any_of(keys.begin(), keys.end(), [&](const run::ConfigKey& key) {
      return "--" + key.name == name;
    });
    const std::string nearest = is_key ? "" : nearest_name(name, options);
    check_usage(nearest.empty(), "there is no option '", name, "'; did you mean '", nearest, "'?");
  }
  return run::split_config_arguments(command.remaining());
}

}  // namespace turbogr::apps
