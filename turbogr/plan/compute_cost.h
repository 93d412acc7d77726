// How long one device computes on a batch, section by section, from the figures of its description.
// What the sections are made of is counted (model/flops.h); how fast each goes is measured.
//
//   const ComputeCost cost(gpu, work);
//   const SectionSeconds seconds = cost.of({.lengths = lengths, .rows = distinct});
#pragma once

#include <cstdint>
#include <span>

#include "turbogr/model/model_options.h"
#include "turbogr/plan/machine.h"

namespace turbogr::plan {

// Bytes a value of updating rows: gradient, weight, weight.
inline constexpr double kRowUpdateBytes = 12;

// What a step computes, whatever its batch.
struct StepWork {
  model::ModelOptions model;
  std::int64_t parameters = 0;  // dense weights
  std::int64_t negatives = 0;   // of the batch, or of each token
  bool shared_negatives = true;
  std::int64_t prefix = 0;  // tokens of the user's features before every history
  bool recompute = false;   // the forward pass again in the backward one
};

struct SectionSeconds {
  double products = 0;
  double attention_forward = 0, attention_backward = 0;
  double elementwise = 0;
  double embedding = 0;   // rows gathered, their gradients added up
  double row_update = 0;  // of the rows touched
  double loss = 0;
  double optimiser = 0;  // of the dense weights
  double gap = 0;

  double forward() const;   // up to the loss and its gradients
  double backward() const;  // down to the gradients of rows
  double total() const { return forward() + backward() + optimiser + row_update; }
};

// What the sections of a batch are made of.
struct SectionCounts {
  double product_flops = 0;
  double pair_flops = 0;    // of attention's forward pass; the backward one has twice as many
  double token_layers = 0;  // tokens times layers, in heads as wide as the ones measured
  double elementwise_bytes = 0;
  double loss_flops = 0;  // of shared negatives
  double loss_bytes = 0;  // of tokens' own
};

struct RankBatch {
  std::span<const std::int64_t> lengths;
  std::int64_t rows = 0;           // distinct rows touched
  std::int64_t feature_reads = 0;  // of features, repeats counted
};

SectionCounts counts_of(const StepWork& work, std::span<const std::int64_t> lengths);
// Ids that a rank looks at to find a step's distinct ones.
double ids_marked(const StepWork& work, std::span<const std::int64_t> lengths);
// What gathering rows and adding up their gradients moves.
double embedding_bytes(const StepWork& work, std::span<const std::int64_t> lengths,
                       std::int64_t rows);

class ComputeCost {
 public:
  ComputeCost(const GpuDescription& gpu, const StepWork& work);

  SectionSeconds of(const RankBatch& batch) const;
  double row_seconds(std::int64_t rows, double bytes_a_value) const;  // a pass over rows
  const StepWork& work() const { return work_; }
  const GpuDescription& gpu() const { return gpu_; }

 private:
  GpuDescription gpu_;
  StepWork work_;
};

}  // namespace turbogr::plan
