#include "turbogr/plan/compute_cost.h"

#include <numeric>

#include "turbogr/core/check.h"

namespace turbogr::plan {
namespace {

constexpr double kTera = 1e12;
constexpr double kValueBytes = 2;  // of an activation in bf16

// Elementwise kernels of a layer read and write so many matrices of [tokens, width], forward and
// backward: 14.2 and 30.9 ms of the steps of bench/results/step_h200_2026-11-15.md at the rate of a
// copy. The share of it that is forward goes with the activations written there.
constexpr double kHstuPasses = 26.5;
constexpr double kFuxiPasses = 57.5;
constexpr double kForwardPasses = 0.4;

// Bytes a value of the embeddings' kernels: a token's row gathered and its gradient added in f32; a
// touched row copied and its gradient zeroed.
constexpr double kTokenRowBytes = 12;
constexpr double kTouchedRowBytes = 12;

// Values of all projections of a token and layer, forward.
double projection_flops(const model::ModelOptions& m) {
  const auto width = static_cast<double>(m.width);
  double flops = 2 * width * static_cast<double>(m.projection_width() + m.mixed_width());
  if (m.kind == model::ModelKind::kFuxi) {
    flops += 3 * 2 * width * static_cast<double>(m.feed_forward);
  }
  return flops;
}

// Of n (n + 1) pairs, each seen once, forward.
double pair_flops(const model::ModelOptions& m) {
  const auto value = static_cast<double>(m.value_width());
  const auto query = static_cast<double>(m.query_width());
  return m.kind == model::ModelKind::kFuxi ? query + 3 * value : query + value;
}

}  // namespace

double SectionSeconds::forward() const {
  return products / 3 + attention_forward + kForwardPasses * elementwise + loss + gap;
}

double SectionSeconds::backward() const {
  return products * 2 / 3 + attention_backward + (1 - kForwardPasses) * elementwise + embedding;
}

ComputeCost::ComputeCost(const GpuDescription& gpu, const StepWork& work) : gpu_(gpu), work_(work) {
  TGR_CHECK(work.parameters >= 0 && work.negatives >= 0, "a step of ", work.parameters,
            " weights and ", work.negatives, " negatives; neither is below zero");
}

double ComputeCost::row_seconds(std::int64_t rows, double bytes_a_value) const {
  return static_cast<double>(rows * work_.model.width) * bytes_a_value /
         (gpu_.row_tbs.value * kTera);
}

SectionCounts counts_of(const StepWork& work, std::span<const std::int64_t> lengths) {
  const model::ModelOptions& m = work.model;
  const bool fuxi = m.kind == model::ModelKind::kFuxi;
  double tokens = 0, pairs = 0;
  double predicting = 0;
  for (const std::int64_t length : lengths) {
    const auto n = static_cast<double>(length + work.prefix);
    predicting += static_cast<double>(length);
    tokens += n;
    pairs += n * (n + 1);
  }
  const auto layers = static_cast<double>(m.layers);
  const auto width = static_cast<double>(m.width);
  const auto negatives = static_cast<double>(work.negatives);
  SectionCounts counts;
  counts.product_flops = 3 * layers * tokens * projection_flops(m);
  counts.pair_flops = layers * pairs * pair_flops(m);
  counts.token_layers = layers * tokens * pair_flops(m) / (fuxi ? 4096 : 2048);
  counts.elementwise_bytes =
      layers * tokens * width * kValueBytes * (fuxi ? kFuxiPasses : kHstuPasses);
  // Scores and the gradients of both their factors.
  (work.shared_negatives ? counts.loss_flops : counts.loss_bytes) =
      predicting * negatives * width * (work.shared_negatives ? 3 * 2 : kValueBytes);
  return counts;
}

double ids_marked(const StepWork& work, std::span<const std::int64_t> lengths) {
  const auto tokens =
      static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}));
  const auto negatives = static_cast<double>(work.negatives);
  return 2 * tokens + (work.shared_negatives ? negatives : tokens * negatives);
}

double embedding_bytes(const StepWork& work, std::span<const std::int64_t> lengths,
                       std::int64_t rows) {
  const std::int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  return static_cast<double>(work.model.width) * (static_cast<double>(tokens) * kTokenRowBytes +
                                                  static_cast<double>(rows) * kTouchedRowBytes);
}

SectionSeconds ComputeCost::of(const RankBatch& batch) const {
  const bool fuxi = work_.model.kind == model::ModelKind::kFuxi;
  const bool biased = work_.model.bias != model::BiasKind::kNone;
  const SectionCounts counts = counts_of(work_, batch.lengths);
  const double stream = gpu_.stream_tbs.value * kTera;
  SectionSeconds s;
  s.products = counts.product_flops / (gpu_.product_tflops.value * kTera);
  const auto attention = [&](double passes, const Figure& tflops, const Figure& token_ns,
                             const Figure& no_bias) {
    const double seconds = passes * counts.pair_flops / (tflops.value * kTera) +
                           counts.token_layers * token_ns.value * 1e-9;
    return biased ? seconds : seconds * no_bias.value;
  };
  s.attention_forward = attention(1, fuxi ? gpu_.fuxi_forward_tflops : gpu_.hstu_forward_tflops,
                                  fuxi ? gpu_.fuxi_forward_token_ns : gpu_.hstu_forward_token_ns,
                                  gpu_.no_bias_forward);
  s.attention_backward = attention(2, fuxi ? gpu_.fuxi_backward_tflops : gpu_.hstu_backward_tflops,
                                   fuxi ? gpu_.fuxi_backward_token_ns : gpu_.hstu_backward_token_ns,
                                   gpu_.no_bias_backward);
  s.elementwise = counts.elementwise_bytes / stream;
  // A feature's row is gathered and given its gradient as a token's is.
  s.embedding = (embedding_bytes(work_, batch.lengths, batch.rows) +
                 static_cast<double>(batch.feature_reads * work_.model.width) * kTokenRowBytes) /
                (gpu_.row_tbs.value * kTera);
  s.row_update = row_seconds(batch.rows, kRowUpdateBytes);
  s.loss = counts.loss_flops / (gpu_.loss_tflops.value * kTera) +
           counts.loss_bytes / (gpu_.loss_gather_tbs.value * kTera);
  s.optimiser = static_cast<double>(work_.parameters) / (gpu_.update_gparameters.value * 1e9);
  s.gap = gpu_.step_gap_ms.value * 1e-3;
  if (work_.recompute) {
    // What a layer made forward is made once more.
    s.products *= 4.0 / 3;
    s.attention_backward += s.attention_forward;
    s.elementwise *= 1 + kForwardPasses;
  }
  return s;
}

}  // namespace turbogr::plan
