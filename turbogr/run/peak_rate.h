// What MFU is measured against when the config names no peak.
#pragma once

#include <functional>
#include <utility>

#include "turbogr/core/context.h"

namespace turbogr::run {

// TFLOP/s. A machine that is busy while a peak is measured has a better one than was found: steps
// that get above it prove it. Then it is measured again, and never stays below what was reached.
class PeakRate {
 public:
  PeakRate() = default;
  // Without `again` it is what it is: a published figure, or the user's word.
  explicit PeakRate(double tflops, std::function<double()> again = {})
      : tflops_(tflops), again_(std::move(again)) {}

  double tflops() const { return tflops_; }
  // Steps have reached so much. True when the peak had to rise.
  bool reached(double tflops);

 private:
  double tflops_ = 1;
  std::function<double()> again_;
};

// `given` where it is above 0; else a GPU's published dense bf16 peak where it is known, else the
// best of many large products in T on the context's device. The context outlives the peak.
template <class T>
PeakRate make_peak_rate(const Context& ctx, double given);

}  // namespace turbogr::run
