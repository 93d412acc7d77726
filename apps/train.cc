// `turbogr train`: a run from one TOML file.
#include <CLI/CLI.hpp>
#include <string>

#include "apps/commands.h"
#include "turbogr/train/config.h"
#include "turbogr/train/training_run.h"

namespace turbogr::apps {

void add_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train as CONFIG.toml [--a.b=c ...] says");
  command->allow_extras();
  command->footer(
      "CONFIG.toml and overrides (--train.steps=100) follow. `turbogr config --keys` lists every "
      "key.");
  command->callback([command] {
    const ConfigArguments arguments = split_config_arguments(command->remaining());
    std::string line = "turbogr train " + arguments.path;
    for (const Override& change : arguments.overrides) {
      line += " --" + change.key + "=" + change.value;
    }
    train::run_training(load_config(arguments.path, arguments.overrides), line);
  });
}

}  // namespace turbogr::apps
