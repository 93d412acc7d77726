// `turbogr bench`: every figure beside a roof and a rival.
#include <CLI/CLI.hpp>

#include "apps/commands.h"

namespace turbogr::apps {

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure; every figure beside a roof and a rival");
  bench->require_subcommand(1);
  add_bench_data(*bench);
  add_bench_loader(*bench);
}

}  // namespace turbogr::apps
