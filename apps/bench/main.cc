// `turbogr bench`, a program of its own: every figure beside a peak and a baseline. What is only
// measured against is not part of the program that trains.
#include <string>
#include <vector>

#include "apps/bench/commands.h"
#include "apps/command_line.h"

int main(int argc, char** argv) {
  namespace apps = turbogr::apps;
  apps::Command bench("turbogr bench", "Measure; every figure beside a peak and a baseline");
  bench.take_common_options();
  bench.require_subcommand();
  apps::add_bench_ops(bench);
  apps::add_bench_gpu_ops(bench);
  apps::add_bench_step(bench);
  apps::add_bench_rank_step(bench);
  apps::add_bench_rank_request(bench);
  apps::add_bench_tables(bench);
  apps::add_bench_attention(bench);
  apps::add_bench_layer(bench);
  apps::add_bench_negatives(bench);
  apps::add_bench_data(bench);
  apps::add_bench_loader(bench);
  apps::add_bench_balance(bench);
  apps::add_bench_exchange(bench);
  apps::add_bench_machine(bench);
  return bench.run(std::vector<std::string>(argv + 1, argv + argc));
}
