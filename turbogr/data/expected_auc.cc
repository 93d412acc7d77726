#include "turbogr/data/expected_auc.h"

#include <algorithm>
#include <cstddef>

namespace turbogr::data {

double expected_auc(std::vector<double> chances) {
  std::ranges::sort(chances);
  double below = 0, pairs = 0, positives = 0, negatives = 0;
  for (std::size_t i = 0; i < chances.size();) {
    std::size_t end = i;
    double positive = 0, negative = 0;
    for (; end < chances.size() && chances[end] == chances[i]; ++end) {
      positive += chances[end];
      negative += 1 - chances[end];
    }
    pairs += positive * (below + negative / 2);
    below += negative;
    positives += positive;
    negatives += negative;
    i = end;
  }
  return pairs / (positives * negatives);
}

}  // namespace turbogr::data
