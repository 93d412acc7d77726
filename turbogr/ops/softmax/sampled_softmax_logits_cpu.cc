// Tokens share their negatives' logits: those of a stretch of the ring are made once, then each
// token sums its own and its partners'.
#include "turbogr/ops/softmax/sampled_softmax_own_cpu.h"

namespace turbogr::ops::kernels {
namespace {

// A round makes `sums` losses from the logits of `rows` tokens; the last ones are made again in the
// next round.
struct LogitRounds {
  std::int64_t sums, rows;

  LogitRounds(std::int64_t tokens, std::int64_t num_negatives, std::int64_t num_sharers) {
    const std::int64_t room = kMaxOwnPairs / std::max(num_negatives, std::int64_t{1});
    rows = std::min(tokens, std::max(room, num_sharers));
    sums = rows == tokens ? tokens : rows - num_sharers + 1;
  }
};

}  // namespace

template <class T>
void softmax_shared_logits(Cpu cpu, const SoftmaxProblem<T>& problem,
                           const SoftmaxOutput<T>& output) {
  WorkspaceScope scratch(cpu.workspace);
  const SampledSoftmaxInputs<T>& in = problem.inputs;
  const std::int64_t num_negatives = problem.num_negatives();
  const std::int64_t sharers = problem.num_sharers();
  const LogitRounds rounds(problem.tokens(), num_negatives, sharers);
  const InverseNorms<float> norms = take_inverse_norms(cpu, scratch, problem);
  const auto queries = scratch.take<float, 2>({cpu.pool.size(), problem.width()});
  const auto positives = scratch.take<float>(rounds.rows);
  const auto logits = scratch.take<float, 2>({rounds.rows, num_negatives});
  const auto scale = static_cast<float>(1.0 / problem.options.temperature);

  for (std::int64_t first = 0; first < problem.tokens(); first += rounds.sums) {
    const std::int64_t count = std::min(rounds.sums, problem.tokens() - first);
    const std::int64_t rows = std::min(rounds.rows, count + sharers - 1);
    parallel_ranges(
        cpu.pool, rows, kOwnTokenGrain, [&](std::int64_t begin, std::int64_t end, int worker) {
          float* query = queries.data + worker * problem.width();
          NegativeBatch<T> batch;
          for (std::int64_t local = begin; local < end; ++local) {
            const std::int64_t token = problem.token_at(first + local);
            row_kernels<T>(cpu.simd).widen(in.query.row(token), norms.query(token) * scale,
                                           problem.width(), query);
            positives(local) = scaled_logit(cpu, problem, norms, query, in.positive(token));
            for (std::int64_t r = 0; r < num_negatives; r += kNegativeBatch) {
              batch.fill(cpu, problem, norms, query, in.positive(token), token, r);
              std::copy_n(batch.corrected, batch.count, &logits(local, r));
            }
          }
        });
    parallel_ranges(cpu.pool, count, kOwnTokenGrain,
                    [&](std::int64_t begin, std::int64_t end, int) {
                      float mine[kNegativeBatch];
                      for (std::int64_t local = begin; local < end; ++local) {
                        const std::int64_t token = problem.token_at(first + local);
                        const std::int32_t positive = in.positive(token);
                        RunningSum total = {positives(local)};
                        for (std::int64_t m = 0; m < sharers; ++m) {
                          const std::int64_t owner = problem.token_at(first + local + m);
                          const std::int64_t row = (local + m) % rounds.rows;
                          for (std::int64_t r = 0; r < num_negatives; r += kNegativeBatch) {
                            const std::int64_t size = std::min(kNegativeBatch, num_negatives - r);
                            const std::int32_t* ids = &in.negatives(owner, r);
                            for (std::int64_t j = 0; j < size; ++j) {
                              mine[j] = ids[j] == positive ? -std::numeric_limits<float>::infinity()
                                                           : logits(row, r + j);
                            }
                            total.add(row_table(cpu.simd), mine, size);
                          }
                        }
                        output.log_sum_exp(token) = total.largest + std::log(total.sum);
                        output.loss(token) = total.largest - positives(local) + std::log(total.sum);
                      }
                    });
  }
}

std::size_t softmax_shared_logits_workspace_bytes(int threads, std::int64_t tokens,
                                                  std::int64_t width, std::int64_t num_negatives,
                                                  std::int64_t num_sharers) {
  const LogitRounds rounds(tokens, num_negatives, num_sharers);
  return workspace_bytes_of<float>(threads * width) + workspace_bytes_of<float>(rounds.rows) +
         workspace_bytes_of<float>(rounds.rows * num_negatives);
}

#define TGR_INSTANTIATE(T) \
  template void softmax_shared_logits<T>(Cpu, const SoftmaxProblem<T>&, const SoftmaxOutput<T>&);
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
