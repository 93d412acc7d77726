// Times one HSTU layer by itself, forward and backward, over jagged sequences: rows in, rows out,
// the gradients of the input and of every weight.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/timing.h"
#include "turbogr/core/device.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/section_timer.h"
#include "turbogr/model/model_options.h"

namespace turbogr::bench {

struct LayerProblem {
  std::vector<std::int64_t> lengths;
  std::int64_t width = 1024;
  int heads = 8;
  std::int64_t head_dim = 128;
  model::BiasKind bias = model::BiasKind::kNone;
  bool concat = false;
  Device device = Device::kCuda;
  DType dtype = DType::kBf16;  // or f32
  int threads = 0;             // 0: one a core
  int repeats = 31;
  std::uint64_t seed = 1;

  std::int64_t tokens() const;
  std::int64_t longest() const;
  model::ModelOptions options() const;  // for sequences up to the longest; no dropout
  double flops() const;                 // causal, forward and backward
};

struct LayerFigures {
  Timing both;
  Timing forward;   // with the plan of the batch, which a whole model makes once for all layers
  Timing backward;  // with clearing the weights' gradients
  // Relative errors (of the sums of squares, the worst of all results) against the CPU in f32, or
  // in double for f32 on a CPU.
  double small_error = 0;  // a small batch: output, input's gradient, every weight's gradient
  double full_error = 0;   // the timed batch: output and input's gradient of one sequence
  double allowed_error = 0;
  std::size_t memory_bytes = 0;                   // of the GPU, all that was in use; 0 on a CPU
  std::array<double, kSections> section_ms = {};  // GPU: from passes apart from those timed
};

// Throws when the layer's answers are wrong.
LayerFigures measure_layer(const LayerProblem& problem);

}  // namespace turbogr::bench
