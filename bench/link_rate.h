// How fast memory moves between the host and a GPU: pinned, by the copy engines.
#pragma once

#include "turbogr/core/context.h"

namespace turbogr::bench {

struct LinkRates {
  double to_device = 0;  // GB/s, one direction at a time
  double to_host = 0;
  double both = 0;  // sum of the two directions at once
};

LinkRates measure_link(const Context& ctx);  // zeros on a CPU

}  // namespace turbogr::bench
