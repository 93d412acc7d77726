// Times training steps and requests of ranking models on made-up batches: what a run would reach
// with a loader that is never late.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "bench/ranking_world.h"
#include "turbogr/core/device.h"
#include "turbogr/core/section_timer.h"
#include "turbogr/model/ranking_flops.h"

namespace turbogr::bench {

struct RankingProblem {
  RankingShape shape;
  RankingLengths lengths;
  Device device = Device::kCuda;
  DType dtype = DType::kBf16;       // of the model
  DType table_dtype = DType::kF32;  // of the tables
  std::int64_t parts = 1;           // a step's batch goes through the model in about so many
  bool recompute = false;
  std::int64_t steps = 10;  // timed; of requests, batches of them
  int threads = 0;          // of the host; 0: one a core
  std::uint64_t seed = 1;
  double peak_tflops = 0;  // 0: the device's published one, or measured
};

struct RankingFigures {
  double ms = 0;       // median from one step's (or batch's) end to the next one's
  double host_ms = 0;  // the host's own work of one, which the device's hides
  std::int64_t tokens = 0, distinct_rows = 0;
  model::RankingFlops flops;  // of one
  double peak_tflops = 0;
  std::size_t table_bytes = 0, memory_bytes = 0;
  double loss = 0;                                // of the last step
  std::array<double, kSections> section_ms = {};  // GPU: of steps apart from those timed
  // GPU: of a few short sequences there and on the CPU in f32; the second loss, or the largest
  // logit's size and the largest gap.
  double small = 0, small_cpu = 0;
};

// Throws when the GPU's results are not the CPU's.
RankingFigures measure_ranking_step(const RankingProblem& problem);
RankingFigures measure_ranking_request(const RankingProblem& problem);

}  // namespace turbogr::bench
