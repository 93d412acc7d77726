// What MFU is measured against when the config names no peak.
#pragma once

#include <functional>
#include <utility>

#include "turbogr/core/context.h"

namespace turbogr::train {

// TFLOP/s. A machine that is busy while a roof is measured has a better one than was found: steps
// that get above it prove it. Then it is measured again, and never stays below what was reached.
class Roof {
 public:
  Roof() = default;
  // Without `again` a roof is what it is: a published peak, or the user's word.
  explicit Roof(double tflops, std::function<double()> again = {})
      : tflops_(tflops), again_(std::move(again)) {}

  double tflops() const { return tflops_; }
  // Steps have reached so much. True when the roof had to rise.
  bool reached(double tflops);

 private:
  double tflops_ = 1;
  std::function<double()> again_;
};

// `given` where it is above 0; else a GPU's published dense bf16 peak where it is known, else the
// best of many large products in T on the context's device. The context outlives the roof.
template <class T>
Roof make_roof(const Context& ctx, double given);

}  // namespace turbogr::train
