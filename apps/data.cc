// `turbogr data`: from raw logs to a sequence store, and what one holds.
#include <CLI/CLI.hpp>

#include "apps/commands.h"

namespace turbogr::apps {

void add_data(CLI::App& app) {
  CLI::App* data = app.add_subcommand("data", "Prepare, check and describe sequence stores");
  data->require_subcommand(1);
  add_data_prepare(*data);
  add_data_stats(*data);
  add_data_verify(*data);
  add_data_synth(*data);
}

}  // namespace turbogr::apps
