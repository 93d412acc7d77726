// Time and memory of the loss with R negatives a token, forward and backward, by path:
//
//   fused         own negatives, rows gathered where they are multiplied
//   materialised  own negatives, looked up into [N, R, D] (materialised_softmax.h)
//   shared        one set of R for all tokens
//   offload       as fused, the item table in host memory (turbogr/embedding/row_prefetch.h): the
//   host
//                 gathers, rounds and sends all rows, and nothing hides it
//
// f32 on a CPU; bf16 on a GPU, where the items' rows are first gathered from a table in f32, which
// counts as memory of the paths that have it there. Offload is for a GPU alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "turbogr/core/context.h"

namespace turbogr::bench {

struct NegativesProblem {
  std::int64_t tokens = 2048;
  std::int64_t width = 1024;
  std::int64_t items = 8192;  // distinct rows that a step touches
  std::int64_t negatives = 128;
  std::uint64_t seed = 1;
  std::size_t memory = 0;  // bytes a path may take; one that needs more is not run
};

struct NegativesFigures {
  std::string path;
  std::optional<Timing> timing;  // none: it does not fit the memory
  // Everything the path holds: query, rows, both gradients, indices, intermediates, scratch.
  std::size_t peak_bytes = 0;
};

std::size_t available_bytes(const Context& ctx);  // of the context's device

// Checks the paths against each other before timing them.
std::vector<NegativesFigures> measure_negatives(const Context& ctx, const NegativesProblem& problem,
                                                double seconds);

}  // namespace turbogr::bench
