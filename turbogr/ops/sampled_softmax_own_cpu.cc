// Each token has negatives of its own: dot products with rows picked by index, limited by the
// memory those rows come from.
#include <algorithm>
#include <cmath>
#include <limits>

#include "turbogr/ops/row_simd.h"
#include "turbogr/ops/sampled_softmax_cpu.h"

namespace turbogr::ops::kernels {
namespace {

constexpr std::int64_t kBatch = 256;         // negatives at a time
constexpr std::int64_t kMaxPairs = 1 << 19;  // of a round of backward: 12 MB of scratch
constexpr std::int64_t kTokenGrain = 8;

std::int64_t round_tokens(std::int64_t tokens, std::int64_t num_negatives) {
  return std::clamp(kMaxPairs / (num_negatives + 1), std::int64_t{1},
                    std::max(tokens, std::int64_t{1}));
}

// Logits of up to kBatch negatives of a token from `begin`: plain, and as they enter the softmax.
template <class T>
struct NegativeBatch {
  const std::int32_t* rows = nullptr;
  std::int64_t count = 0;
  float logits[kBatch];
  float corrected[kBatch];

  void fill(Cpu cpu, const SoftmaxProblem<T>& problem, const InverseNorms<float>& norms,
            const float* scaled_query, std::int64_t token, std::int64_t begin) {
    const SampledSoftmaxInputs<T>& in = problem.inputs;
    rows = &in.negatives(token, begin);
    count = std::min(kBatch, in.negatives.shape[1] - begin);
    row_kernels<T>(cpu.simd).dot(scaled_query, in.items.data, in.items.stride, rows, count,
                                 problem.width(), logits);
    const std::int32_t positive = in.positive(token);
    for (std::int64_t j = 0; j < count; ++j) {
      logits[j] *= norms.items(rows[j]);
      corrected[j] = rows[j] == positive ? -std::numeric_limits<float>::infinity()
                                         : logits[j] - problem.correction(rows[j]);
    }
  }
};

}  // namespace

template <class T>
void softmax_own(Cpu cpu, const SoftmaxProblem<T>& problem, const SoftmaxOutput<T>& output) {
  WorkspaceScope scratch(cpu.workspace);
  const InverseNorms<float> norms = take_inverse_norms(cpu, scratch, problem);
  const auto queries = scratch.take<float, 2>({cpu.pool.size(), problem.width()});
  const RowTable& table = row_table(cpu.simd);
  const auto scale = static_cast<float>(1.0 / problem.options.temperature);
  parallel_ranges(
      cpu.pool, problem.tokens(), kTokenGrain,
      [&](std::int64_t begin, std::int64_t end, int worker) {
        float* query = queries.data + worker * problem.width();
        NegativeBatch<T> batch;
        for (std::int64_t i = begin; i < end; ++i) {
          row_kernels<T>(cpu.simd).widen(problem.inputs.query.row(i), norms.query(i) * scale,
                                         problem.width(), query);
          const float positive =
              scaled_logit(cpu, problem, norms, query, problem.inputs.positive(i));
          float largest = positive;
          float sum = 1.0f;
          for (std::int64_t r = 0; r < problem.num_negatives(); r += kBatch) {
            batch.fill(cpu, problem, norms, query, i, r);
            const float higher = std::max(largest, table.max(batch.corrected, batch.count));
            sum = sum * std::exp(largest - higher) +
                  table.exp_minus(batch.corrected, batch.count, higher);
            largest = higher;
          }
          output.log_sum_exp(i) = largest + std::log(sum);
          output.loss(i) = largest - positive + std::log(sum);
        }
      });
}

template <class T>
void softmax_own_backward(Cpu cpu, const SoftmaxProblem<T>& problem,
                          View<const float, 1> log_sum_exp, View<const float, 1> dloss,
                          Rows<T> dquery, Rows<float> ditems) {
  WorkspaceScope scratch(cpu.workspace);
  const SampledSoftmaxInputs<T>& in = problem.inputs;
  const std::int64_t width = problem.width();
  const std::int64_t per_token = problem.num_negatives() + 1;
  const std::int64_t round = round_tokens(problem.tokens(), problem.num_negatives());
  const InverseNorms<float> norms = take_inverse_norms(cpu, scratch, problem);
  const auto buffers = scratch.take<float, 3>({cpu.pool.size(), 2, width});
  const ItemPairs pairs(scratch, round * per_token);
  const RowKernels<T>& rows = row_kernels<T>(cpu.simd);
  const auto scale = static_cast<float>(1.0 / problem.options.temperature);

  for (std::int64_t first = 0; first < problem.tokens(); first += round) {
    const std::int64_t count = std::min(round, problem.tokens() - first);
    parallel_ranges(
        cpu.pool, count, kTokenGrain, [&](std::int64_t begin, std::int64_t end, int worker) {
          float* query = &buffers(worker, 0, 0);
          float* v = &buffers(worker, 1, 0);
          NegativeBatch<T> batch;
          for (std::int64_t local = begin; local < end; ++local) {
            const std::int64_t i = first + local;
            const float query_scale = norms.query(i) * scale;
            rows.widen(in.query.row(i), query_scale, width, query);
            std::fill(v, v + width, 0.0f);
            std::int64_t p = local * per_token;
            const std::int32_t positive = in.positive(i);
            const float logit = scaled_logit(cpu, problem, norms, query, positive);
            const float g = dloss(i) * std::expm1(logit - log_sum_exp(i));
            pairs.set(p++, positive, g * query_scale, g * logit);
            const float weight = g * norms.items(positive);
            rows.add(in.items.data, in.items.stride, &positive, &weight, 1, width, v);
            for (std::int64_t r = 0; r < problem.num_negatives(); r += kBatch) {
              batch.fill(cpu, problem, norms, query, i, r);
              row_table(cpu.simd).exp_minus(batch.corrected, batch.count, log_sum_exp(i));
              for (std::int64_t j = 0; j < batch.count; ++j) {
                const float gradient = dloss(i) * batch.corrected[j];
                pairs.set(p++, batch.rows[j], gradient * query_scale, gradient * batch.logits[j]);
                batch.corrected[j] = gradient * norms.items(batch.rows[j]);
              }
              rows.add(in.items.data, in.items.stride, batch.rows, batch.corrected, batch.count,
                       width, v);
            }
            finish_query_gradient(cpu, problem, norms, i, query, v, dquery);
          }
        });
    add_item_gradients(cpu, problem, norms, pairs, count * per_token, first, per_token, ditems);
  }
}

std::size_t softmax_own_workspace_bytes(int threads, std::int64_t tokens, std::int64_t width,
                                        std::int64_t num_negatives) {
  return workspace_bytes_of<float>(threads * 2 * width) +
         ItemPairs::workspace_bytes(round_tokens(tokens, num_negatives) * (num_negatives + 1));
}

#define TGR_INSTANTIATE(T)                                                                   \
  template void softmax_own<T>(Cpu, const SoftmaxProblem<T>&, const SoftmaxOutput<T>&);      \
  template void softmax_own_backward<T>(Cpu, const SoftmaxProblem<T>&, View<const float, 1>, \
                                        View<const float, 1>, Rows<T>, Rows<float>);
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
