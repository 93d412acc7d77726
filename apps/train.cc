// `turbogr train`: a run from one TOML file.
#include <memory>
#include <string>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/train/config.h"
#include "turbogr/train/training_run.h"

namespace turbogr::apps {

void add_train(Command& app) {
  Command* command = app.add_subcommand("train", "Train a model as a config file says");
  command->take_config();
  command->callback([command] {
    const ConfigArguments arguments = split_config_arguments(command->remaining());
    std::string line = "turbogr train " + arguments.path;
    for (const Override& change : arguments.overrides) {
      line += " --" + change.key + "=" + change.value;
    }
    const Config config = load_config(arguments.path, arguments.overrides);
    dist::run_as_launched(
        [&](dist::Communicator& world) { train::run_training(config, line, world); },
        {.timeout_seconds = config.dist.timeout});
  });
}

}  // namespace turbogr::apps
