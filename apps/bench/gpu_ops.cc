// `turbogr bench gpu-ops` and `gpu-products`.
#include "apps/bench/commands.h"
#include "bench/gpu_operators.h"
#include "bench/gpu_products.h"

namespace turbogr::apps {

void add_bench_gpu_ops(Command& bench) {
  Command* command = bench.add_subcommand(
      "gpu-ops", "A large step's operators on a GPU, each with the rate of the bytes it must move");
  command->callback([] { bench::time_gpu_operators(); });
  Command* products = bench.add_subcommand(
      "gpu-products", "Products of large models' layers on a GPU, in bf16 and in fp8");
  products->callback([] { bench::time_gpu_products(); });
}

}  // namespace turbogr::apps
