// Times whole training steps of a config on made-up users: what a run would reach with a loader
// that is never late.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/link_rate.h"
#include "turbogr/core/section_timer.h"
#include "turbogr/run/config.h"

namespace turbogr::bench {

struct StepProblem {
  run::Config config;
  std::vector<std::int64_t> lengths;
  std::int64_t items = 1'000'000;
  std::int64_t steps = 20;
  std::uint64_t seed = 1;
  Trace* trace = nullptr;  // of the steps timed
};

struct StepFigures {
  std::int64_t tokens = 0;
  double ms = 0;  // median from one step's end to the next one's
  double mfu_causal = 0;
  double mfu_paper = 0;
  double peak_tflops = 0;
  double joules_per_token = 0;   // of the GPU over the steps timed; 0: not known
  std::size_t memory_bytes = 0;  // of the device, all there is in use; on a CPU what was planned
  double loss = 0;               // of the last step
  std::int64_t batch_items = 0;  // distinct ones of a batch and its targets, mean
  // Milliseconds of a step by section, medians over steps apart from those timed.
  std::array<double, kSections> section_ms = {};
  // GPU: the first losses of a small batch there and on the CPU in f32.
  double small_loss = 0;
  double small_loss_cpu = 0;
  // GPU, with the item table in host memory: bytes of a step over the link, and what it can do.
  double link_bytes_to_device = 0;
  double link_bytes_to_host = 0;
  LinkRates link;
};

// Throws when the GPU's losses are not the CPU's.
StepFigures measure_step(const StepProblem& problem);

}  // namespace turbogr::bench
