// `turbogr bench gpu-ops`.
#include "apps/bench/commands.h"
#include "bench/gpu_operators.h"

namespace turbogr::apps {

void add_bench_gpu_ops(Command& bench) {
  Command* command = bench.add_subcommand(
      "gpu-ops", "A large step's operators on a GPU, each with the rate of the bytes it must move");
  command->callback([] { bench::time_gpu_operators(); });
}

}  // namespace turbogr::apps
