#include "turbogr/balance/cost_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "turbogr/core/check.h"

namespace turbogr::balance {

CostModel fit_cost(std::span<const double> tokens, std::span<const double> pairs,
                   std::span<const double> seconds) {
  TGR_CHECK(tokens.size() == seconds.size() && pairs.size() == seconds.size(),
            "fit_cost: ", tokens.size(), " and ", pairs.size(), " sizes for ", seconds.size(),
            " times");
  double tt = 0, tp = 0, pp = 0, ts = 0, ps = 0;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    tt += tokens[i] * tokens[i];
    tp += tokens[i] * pairs[i];
    pp += pairs[i] * pairs[i];
    ts += tokens[i] * seconds[i];
    ps += pairs[i] * seconds[i];
  }
  const double determinant = tt * pp - tp * tp;
  TGR_CHECK(determinant > 1e-12 * tt * pp, "fit_cost: ", seconds.size(),
            " batches cannot tell the cost of a token from that of a pair; measure batches of "
            "different lengths");
  CostModel model = {(ts * pp - ps * tp) / determinant, (tt * ps - tp * ts) / determinant};
  if (model.per_pair < 0) model = {ts / tt, 0};
  if (model.per_token < 0) model = {0, ps / pp};
  return model;
}

double waiting_share(std::span<const double> work) {
  if (work.empty()) return 0;
  const double most = *std::max_element(work.begin(), work.end());
  if (most <= 0) return 0;
  const double mean =
      std::accumulate(work.begin(), work.end(), 0.0) / static_cast<double>(work.size());
  return std::max(0.0, 1 - mean / most);
}

}  // namespace turbogr::balance
