// How things are timed: one call to warm up, then repeats until both a time and a count are
// reached; the median is quoted, with the tenth and ninetieth percentile beside it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "turbogr/core/trace.h"

namespace turbogr::bench {

struct Timing {
  double ms = 0;  // median
  double p10_ms = 0;
  double p90_ms = 0;
};

inline Timing summary_of(std::vector<double> samples_ms) {
  std::sort(samples_ms.begin(), samples_ms.end());
  const auto at = [&](double share) {
    return samples_ms[static_cast<std::size_t>(share * static_cast<double>(samples_ms.size() - 1))];
  };
  return {at(0.5), at(0.1), at(0.9)};
}

template <class Function>
double milliseconds_of(Function&& function) {
  const std::int64_t begin = Trace::now_ns();
  function();
  return static_cast<double>(Trace::now_ns() - begin) * 1e-6;
}

// Two competitors in turn, so that a busy neighbour hurts both alike. A competitor may be empty.
template <class Ours, class Baseline>
std::pair<Timing, Timing> time_in_turn(Ours&& ours, Baseline&& baseline, double seconds,
                                       int least) {
  std::vector<double> our_ms;
  std::vector<double> baseline_ms;
  ours();
  baseline();
  double spent_ms = 0;
  while (static_cast<int>(our_ms.size()) < least || spent_ms < seconds * 1e3) {
    our_ms.push_back(milliseconds_of(ours));
    baseline_ms.push_back(milliseconds_of(baseline));
    spent_ms += our_ms.back() + baseline_ms.back();
  }
  return {summary_of(std::move(our_ms)), summary_of(std::move(baseline_ms))};
}

}  // namespace turbogr::bench
