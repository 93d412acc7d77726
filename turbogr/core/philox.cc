#include "turbogr/core/philox.h"

#include <cmath>
#include <numbers>

namespace turbogr {

double PhiloxStream::normal() {
  // Box-Muller; 1 - uniform() is never zero, so the logarithm is finite.
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

}  // namespace turbogr
