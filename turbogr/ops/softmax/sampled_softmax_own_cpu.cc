// Each token has negatives of its own, and perhaps its partners': dot products with rows picked by
// index, limited by the memory those rows come from.
#include "turbogr/ops/softmax/sampled_softmax_own_cpu.h"

namespace turbogr::ops::kernels {
namespace {

std::int64_t round_tokens(std::int64_t tokens, std::int64_t num_negatives) {
  return std::clamp(kMaxOwnPairs / (num_negatives + 1), std::int64_t{1},
                    std::max(tokens, std::int64_t{1}));
}

// How many tokens' negatives a query is multiplied with.
template <class T>
std::int64_t owners_of(const SoftmaxProblem<T>& problem) {
  return problem.shares(NegativeSharing::kEmbeddings) ? problem.num_sharers() : 1;
}

// Turns a batch's logits into their gradients, in `corrected`. Under shared logits those of a token
// count for it and for the tokens before it in the ring.
template <class T>
void take_gradients(Cpu cpu, const SoftmaxProblem<T>& problem, std::int64_t place,
                    View<const float, 1> log_sum_exp, View<const float, 1> dloss,
                    NegativeBatch<T>& batch) {
  const RowTable& table = row_table(cpu.simd);
  const std::int32_t self = problem.token_at(place);
  if (!problem.shares(NegativeSharing::kLogits)) {
    table.exp_minus(batch.corrected, batch.count, log_sum_exp(self));
    for (std::int64_t j = 0; j < batch.count; ++j) batch.corrected[j] *= dloss(self);
    return;
  }
  float total[kNegativeBatch] = {};
  float share[kNegativeBatch];
  for (std::int64_t m = 0; m < problem.num_sharers(); ++m) {
    const std::int32_t user = problem.token_at(place - m);
    const std::int32_t positive = problem.inputs.positive(user);
    for (std::int64_t j = 0; j < batch.count; ++j) {
      share[j] =
          batch.rows[j] == positive ? -std::numeric_limits<float>::infinity() : batch.corrected[j];
    }
    table.exp_minus(share, batch.count, log_sum_exp(user));
    table.axpy(dloss(user), share, batch.count, total);
  }
  std::copy_n(total, batch.count, batch.corrected);
}

}  // namespace

template <class T>
void softmax_own(Cpu cpu, const SoftmaxProblem<T>& problem, const SoftmaxOutput<T>& output) {
  if (problem.shares(NegativeSharing::kLogits)) {
    softmax_shared_logits<T>(cpu, problem, output);
    return;
  }
  WorkspaceScope scratch(cpu.workspace);
  const InverseNorms<float> norms = take_inverse_norms(cpu, scratch, problem);
  const auto queries = scratch.take<float, 2>({cpu.pool.size(), problem.width()});
  const auto scale = static_cast<float>(1.0 / problem.options.temperature);
  parallel_ranges(cpu.pool, problem.tokens(), kOwnTokenGrain,
                  [&](std::int64_t begin, std::int64_t end, int worker) {
                    float* query = queries.data + worker * problem.width();
                    NegativeBatch<T> batch;
                    for (std::int64_t place = begin; place < end; ++place) {
                      const std::int64_t i = problem.token_at(place);
                      const std::int32_t positive = problem.inputs.positive(i);
                      row_kernels<T>(cpu.simd).widen(problem.inputs.query.row(i),
                                                     norms.query(i) * scale, problem.width(),
                                                     query);
                      const float logit = scaled_logit(cpu, problem, norms, query, positive);
                      RunningSum total = {logit};
                      for (std::int64_t m = 0; m < owners_of(problem); ++m) {
                        const std::int64_t owner = problem.token_at(place + m);
                        for (std::int64_t r = 0; r < problem.num_negatives(); r += kNegativeBatch) {
                          batch.fill(cpu, problem, norms, query, positive, owner, r);
                          total.add(row_table(cpu.simd), batch.corrected, batch.count);
                        }
                      }
                      output.log_sum_exp(i) = total.largest + std::log(total.sum);
                      output.loss(i) = total.largest - logit + std::log(total.sum);
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
  const std::int64_t products = owners_of(problem) * problem.num_negatives();  // a token
  const std::int64_t per_token = products + 1;
  const std::int64_t round = round_tokens(problem.tokens(), products);
  const InverseNorms<float> norms = take_inverse_norms(cpu, scratch, problem);
  const auto buffers = scratch.take<float, 3>({cpu.pool.size(), 2, width});
  const ItemPairs pairs(scratch, round * per_token);
  const RowKernels<T>& rows = row_kernels<T>(cpu.simd);
  const auto scale = static_cast<float>(1.0 / problem.options.temperature);

  for (std::int64_t first = 0; first < problem.tokens(); first += round) {
    const std::int64_t count = std::min(round, problem.tokens() - first);
    parallel_ranges(
        cpu.pool, count, kOwnTokenGrain, [&](std::int64_t begin, std::int64_t end, int worker) {
          float* query = &buffers(worker, 0, 0);
          float* v = &buffers(worker, 1, 0);
          NegativeBatch<T> batch;
          for (std::int64_t local = begin; local < end; ++local) {
            const std::int64_t place = first + local;
            const std::int64_t i = problem.token_at(place);
            const float query_scale = norms.query(i) * scale;
            rows.widen(in.query.row(i), query_scale, width, query);
            std::fill(v, v + width, 0.0f);
            std::int64_t p = local * per_token;
            const std::int32_t positive = in.positive(i);
            const float logit = scaled_logit(cpu, problem, norms, query, positive);
            const float g = dloss(i) * std::expm1(logit - log_sum_exp(i));
            const float weight = g * norms.items(positive);
            pairs.set(p++, positive, weight * query_scale, g * logit);
            rows.add(in.items.data, in.items.stride, &positive, &weight, 1, width, v);
            for (std::int64_t m = 0; m < owners_of(problem); ++m) {
              const std::int64_t owner = problem.token_at(place + m);
              for (std::int64_t r = 0; r < problem.num_negatives(); r += kNegativeBatch) {
                batch.fill(cpu, problem, norms, query, positive, owner, r);
                take_gradients(cpu, problem, place, log_sum_exp, dloss, batch);
                for (std::int64_t j = 0; j < batch.count; ++j) {
                  const float gradient = batch.corrected[j];
                  const std::int32_t row = batch.rows[j];
                  pairs.set(p++, row, gradient * norms.negatives(row) * query_scale,
                            gradient * batch.logits[j]);
                  batch.corrected[j] = gradient * norms.reading(row);
                }
                add_negatives(cpu, problem, batch.rows, batch.corrected, batch.count, v);
              }
            }
            finish_query_gradient(cpu, problem, norms, i, query, v, dquery);
          }
        });
    add_item_gradients(cpu, problem, norms, pairs, count * per_token, first, per_token, ditems);
  }
}

std::size_t softmax_own_workspace_bytes(int threads, std::int64_t tokens, std::int64_t width,
                                        std::int64_t num_negatives, const SoftmaxOptions& options) {
  const std::int64_t sharers =
      std::clamp(options.sharing_factor, std::int64_t{1}, std::max(tokens, std::int64_t{1}));
  const std::int64_t owners = options.sharing == NegativeSharing::kEmbeddings ? sharers : 1;
  const std::int64_t products = owners * num_negatives;
  // Fewer tokens than share have fewer products each, and more of them in a round: this holds any.
  const std::int64_t pairs = std::min(std::max(kMaxOwnPairs, products + 1),
                                      std::max<std::int64_t>(tokens, 1) * (products + 1));
  const std::size_t backward =
      workspace_bytes_of<float>(threads * 2 * width) + ItemPairs::workspace_bytes(pairs);
  if (options.sharing != NegativeSharing::kLogits) return backward;
  return std::max(backward, softmax_shared_logits_workspace_bytes(threads, tokens, width,
                                                                  num_negatives, sharers));
}

#define TGR_INSTANTIATE(T)                                                                   \
  template void softmax_own<T>(Cpu, const SoftmaxProblem<T>&, const SoftmaxOutput<T>&);      \
  template void softmax_own_backward<T>(Cpu, const SoftmaxProblem<T>&, View<const float, 1>, \
                                        View<const float, 1>, Rows<T>, Rows<float>);
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
