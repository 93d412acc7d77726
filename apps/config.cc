// `turbogr config`: the complete configuration a run would have, or the list of all keys.
#include "turbogr/run/config.h"

#include <fmt/format.h>

#include <memory>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/config_arguments.h"
#include "turbogr/core/log.h"

namespace turbogr::apps {

void add_config(Command& app) {
  Command* command =
      app.add_subcommand("config", "Print the complete config a run would have, or list all keys");
  command->take_config();
  command->footer(
      "Any key of the file can be overridden: --train.steps=100. `turbogr config --keys` lists "
      "them.\nThe file may be left out: --data.store=STORE shows what is chosen for a store.");
  auto keys = std::make_shared<bool>(false);
  command->add_flag("--keys", *keys,
                    "List every key: default or how it is chosen, meaning, what is allowed");
  command->callback([command, keys] {
    if (*keys) {
      check_usage(command->remaining().empty(), "--keys lists every key there is; leave out '",
                  command->remaining().empty() ? "" : command->remaining().front(), "'");
      fmt::print("{}", run::config_help());
      return;
    }
    const run::ConfigArguments arguments = config_arguments(*command);
    const run::LoadedConfig loaded =
        run::load_config_for_store(arguments.path, arguments.overrides);
    if (!loaded.unread.empty()) {
      log::warn("keys that the store decides are shown as they are without one: {}", loaded.unread);
    }
    fmt::print("{}", run::config_text(loaded.config));
  });
}

}  // namespace turbogr::apps
