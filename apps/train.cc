// `turbogr train`: a run from one TOML file, or from a store alone.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/config_arguments.h"
#include "apps/same_command.h"
#include "turbogr/core/log.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/run/config.h"
#include "turbogr/run/training_run.h"

namespace turbogr::apps {

void add_train(Command& app) {
  Command* command =
      app.add_subcommand("train", "Train a model as a config file says, or on a store alone");
  command->take_config();
  command->footer(
      "Any key of the file can be overridden: --train.steps=100. `turbogr config --keys` lists "
      "them.\nThe file may be left out: `turbogr train --data.store=STORE` chooses the model and "
      "the run's length\nfrom the store's size and writes to runs/ and the store's name.\n"
      "--task=ranking, or task in the file, trains a model that judges items for a user by the "
      "store's\nfeatures and signals, instead of one that finds them.");
  command->callback([command] {
    const run::ConfigArguments arguments = config_arguments(*command);
    std::string line = "turbogr train";
    if (!arguments.path.empty()) line += " " + arguments.path;
    for (const run::Override& change : arguments.overrides) {
      line += " --" + change.key + "=" + change.value;
    }
    const run::LoadedConfig loaded =
        run::load_config_for_store(arguments.path, arguments.overrides);
    dist::run_as_launched(
        [&](dist::Communicator& world) {
          check_same_command(world, "train", SameCommand::kName);
          if (world.rank() == 0 && !loaded.chosen.empty()) {
            log::info("chosen from the store's size: {}", fmt::join(loaded.chosen, ", "));
          }
          run::run_training(loaded.config, line, world);
        },
        {.timeout_seconds = loaded.config.dist.timeout});
  });
}

}  // namespace turbogr::apps
