// `turbogr tune`: a small search for better settings than a config's.
#include "turbogr/run/tune.h"

#include <memory>
#include <string>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/config_arguments.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/run/config.h"

namespace turbogr::apps {

Command* add_tune(Command& app) {
  Command* command = app.add_subcommand(
      "tune", "Look for better settings: train many a little and the best to the end");
  command->take_config();
  command->footer(
      "Trials are drawn at random round the config (or, without one, round what is chosen for "
      "--data.store).\nAll are trained for a part of train.epochs, the better third for longer, "
      "the best to the end.\nThe same command goes on with a search that was stopped or killed.");
  auto options = std::make_shared<run::TuneOptions>();
  command->add_option("--trials", options->trials, "Settings to try; the first is the config's own")
      ->check(is_positive())
      ->capture_default_str();
  command
      ->add_option("--vary", options->vary,
                   "What to vary: lr, dropout, width, layers, negatives (ranking: tables); default "
                   "all")
      ->delimiter(',');
  command->add_option("--seed", options->seed, "Seed of the draws")->capture_default_str();
  command->add_option("--out", options->folder, "Folder of the search; default: run.dir and -tune");
  command->callback([command, options] {
    const run::ConfigArguments arguments = config_arguments(*command);
    const run::Config config = run::load_config(arguments.path, arguments.overrides);
    if (options->folder.empty()) options->folder = config.run.dir + "-tune";
    const auto world = dist::make_self();
    run::tune(config, *options, *world);
  });
  return command;
}

}  // namespace turbogr::apps
