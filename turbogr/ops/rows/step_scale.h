// The arithmetic of make_step_scale, one for both devices.
#pragma once

#include <cmath>
#include <cstdint>

#include "turbogr/core/host_device.h"
#include "turbogr/ops/rows/update.h"

namespace turbogr::ops {

TGR_HD inline StepScale step_scale(View<const double, 1> squares, View<const double, 1> losses,
                                   const StepScaleOptions& options) {
  double square = 0, others = 0;
  for (std::int64_t i = 0; i < squares.shape[0]; ++i) {
    (i < options.counted ? square : others) += squares.data[i];
  }
  double loss = 0;
  for (std::int64_t i = 0; i < losses.shape[0]; ++i) loss += losses.data[i];
  loss *= options.loss_weight;
  const double norm = std::sqrt(square);
  const bool finite = std::isfinite(square) && std::isfinite(others) && std::isfinite(loss);
  const bool clips = options.clip > 0 && norm > options.clip;
  return {.scale = clips ? options.clip / norm : 1.0,
          .finite = finite ? 1.0 : 0.0,
          .norm = norm,
          .loss = loss};
}

}  // namespace turbogr::ops
