// `turbogr data`: from raw logs to a sequence store, and what one holds.

#include "apps/command_line.h"
#include "apps/commands.h"

namespace turbogr::apps {

Command* add_data(Command& app) {
  Command* data = app.add_subcommand("data", "Prepare, check and describe sequence stores");
  data->require_subcommand();
  add_data_prepare(*data);
  add_data_merge(*data);
  add_data_stats(*data);
  add_data_verify(*data);
  add_data_synth(*data);
  return data;
}

}  // namespace turbogr::apps
