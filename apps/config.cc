// `turbogr config`: the complete configuration a run would have, or the list of all keys.
#include "turbogr/train/config.h"

#include <fmt/format.h>

#include <memory>

#include "apps/command_line.h"
#include "apps/commands.h"

namespace turbogr::apps {

void add_config(Command& app) {
  Command* command =
      app.add_subcommand("config", "Print the complete config a run would have, or list all keys");
  command->take_config();
  auto keys = std::make_shared<bool>(false);
  command->add_flag("--keys", *keys, "List every key: default, meaning, what is allowed");
  command->callback([command, keys] {
    if (*keys) {
      fmt::print("{}", config_help());
      return;
    }
    const ConfigArguments arguments = split_config_arguments(command->remaining());
    fmt::print("{}", config_text(load_config(arguments.path, arguments.overrides)));
  });
}

}  // namespace turbogr::apps
