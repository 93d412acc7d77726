// `turbogr bench`: every figure beside a roof and a rival.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>

#include "apps/commands.h"

namespace turbogr::apps {

std::string positive(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end != text.c_str() && *end == 0 && value > 0) return "";
  return "'" + text + "' is not more than 0";
}

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure; every figure beside a roof and a rival");
  bench->require_subcommand(1);
  add_bench_balance(*bench);
  add_bench_attention(*bench);
  add_bench_data(*bench);
  add_bench_exchange(*bench);
  add_bench_layer(*bench);
  add_bench_loader(*bench);
  add_bench_negatives(*bench);
  add_bench_ops(*bench);
  add_bench_step(*bench);
}

}  // namespace turbogr::apps
