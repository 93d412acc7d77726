// What AdamW's inner loop needs, from what people set. Apart from update_simd.h, whose includers
// are compiled for several instruction sets and share no inline code.
#pragma once

#include <cmath>

#include "turbogr/core/host_device.h"
#include "turbogr/ops/rows/update_simd.h"

namespace turbogr {

struct AdamWSettings {
  double rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.98;
  double epsilon = 1e-8;
  double decay = 0;
  double step = 1;            // counted from 1: corrects the moments' start at zero
  double gradient_scale = 1;  // applied to the gradient on the way in
  // AdaGrad divides by sqrt(v) + epsilon, as ranking models are published, and not by sqrt(v +
  // epsilon).
  bool epsilon_outside = false;
  // AdaGrad: the decay is a part of the gradient, g + decay w, in the mean square, too, and not a
  // step of its own.
  bool decay_in_gradient = false;
};

// What AdaGrad divides a row's step by; v is its accumulator.
TGR_HD inline double adagrad_divisor(float v, double epsilon, bool epsilon_outside) {
  const auto wide = static_cast<double>(v);
  return epsilon_outside ? std::sqrt(wide) + epsilon : std::sqrt(wide + epsilon);
}

inline AdamWCoefficients adamw_coefficients(const AdamWSettings& s) {
  return {.beta1 = static_cast<float>(s.beta1),
          .beta2 = static_cast<float>(s.beta2),
          .epsilon = static_cast<float>(s.epsilon),
          .step_size = static_cast<float>(s.rate / (1 - std::pow(s.beta1, s.step))),
          .second_scale = static_cast<float>(1 / (1 - std::pow(s.beta2, s.step))),
          .decay = static_cast<float>(s.rate * s.decay),
          .gradient_scale = static_cast<float>(s.gradient_scale)};
}

}  // namespace turbogr
