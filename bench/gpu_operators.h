// Times of the operators of a large step on a GPU beside attention and products: 65,536 tokens of
// width 1024 in bf16, with the bytes that each must move over its time.
#pragma once

namespace turbogr::bench {

// Prints a line an operator.
void time_gpu_operators();

}  // namespace turbogr::bench
