// How many steps a run will take. With a token budget every epoch's order packs a little
// differently, so the plan is walked, not divided.
#pragma once

#include <cstdint>
#include <span>

#include "turbogr/data/batching.h"
#include "turbogr/data/windows.h"

namespace turbogr::run {

struct StepCount {
  std::int64_t an_epoch = 0;  // of the first
  std::int64_t in_all = 0;    // of `epochs` epochs; 0 when that is 0

  // Of a run that also ends after so many; 0: never by their number.
  std::int64_t limited_to(std::int64_t steps) const;
};

// Reads no event. Exact for runs of up to `walked` windows in all; the epochs after those are taken
// to be like the ones before.
StepCount count_steps(std::span<const data::Window> windows, const data::PlanOptions& plan,
                      std::int64_t accumulate, std::int64_t epochs,
                      std::int64_t walked = 10'000'000);

}  // namespace turbogr::run
