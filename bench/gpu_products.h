// The products of large models' layers on a GPU, in bf16 and in fp8, each under the clocks of a
// long run, with the passes that quantise their operands.
#pragma once

namespace turbogr::bench {

// Of 65,536 tokens. Prints a line a weight matrix.
void time_gpu_products();

}  // namespace turbogr::bench
