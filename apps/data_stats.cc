// `turbogr data stats STORE` and `turbogr data verify STORE`.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "turbogr/core/output_file.h"
#include "turbogr/data/stats.h"
#include "turbogr/data/store.h"

namespace turbogr::apps {

void add_data_stats(Command& app) {
  auto* command = app.add_subcommand("stats", "Counts, length and popularity quantiles, time span");
  auto store = std::make_shared<std::string>();
  auto json = std::make_shared<std::string>();
  command->add_option("STORE", *store, "a folder made by `turbogr data prepare` or `synth`")
      ->required();
  command->add_option("--json", *json, "also write the figures to this file");
  command->callback([store, json] {
    const data::StoreStats stats = data::stats_of(data::Store(*store));
    fmt::print("{}", data::to_text(stats));
    if (!json->empty()) replace_file(*json, data::to_json(stats));
  });
}

void add_data_verify(Command& app) {
  auto* command = app.add_subcommand("verify", "Check every byte of a store against its checksums");
  auto store = std::make_shared<std::string>();
  command->add_option("STORE", *store, "a sequence store")->required();
  command->callback([store] {
    const data::Store opened(*store);
    opened.verify();
    fmt::print("{}: every byte as written, {} users, {} items, {} events\n", *store,
               opened.num_users(), opened.num_items(), opened.num_events());
  });
}

}  // namespace turbogr::apps
