// What a sequence of n tokens costs: a n + b n^2, the projections and the attention. In FLOPs when
// a and b come from the model, in seconds when they were fitted to measured times.
#pragma once

#include <cstdint>
#include <span>

namespace turbogr::balance {

struct CostModel {
  double per_token = 1;  // a
  double per_pair = 0;   // b

  double cost(std::int64_t length) const {
    const auto n = static_cast<double>(length);
    return n * (per_token + n * per_pair);
  }
};

// Least squares over batches: batch i took seconds[i] and held sum n = tokens[i], sum n^2 =
// pairs[i]. Negative terms become zero. Throws when the batches cannot tell a from b and both are
// asked of them (fewer than two, or all alike).
CostModel fit_cost(std::span<const double> tokens, std::span<const double> pairs,
                   std::span<const double> seconds);

// 1 - mean / max of the ranks' work: the share of a step that ranks wait for the slowest.
double waiting_share(std::span<const double> work);

}  // namespace turbogr::balance
