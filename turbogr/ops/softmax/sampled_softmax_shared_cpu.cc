// All tokens share their candidates (a sampled set, or the catalogue): products of tiles, a block
// of candidates at a time against tiles of tokens, limited by arithmetic.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "turbogr/ops/softmax/candidate_block.h"
#include "turbogr/ops/softmax/sampled_softmax_cpu.h"

namespace turbogr::ops::kernels {
namespace {

constexpr std::int64_t kRoundTokens = 2048;  // of backward: what bounds its scratch

// A block of candidates with what the softmax needs to know of each.
template <class T>
struct NegativeBlock {
  CandidateBlock block;
  std::array<std::int32_t, kBlockCandidates> rows;
  std::array<float, kBlockCandidates> correction;

  NegativeBlock(WorkspaceScope& scratch, std::int64_t width) : block(scratch, width) {}

  void fill(Cpu cpu, const SoftmaxProblem<T>& problem, const InverseNorms<float>& norms,
            std::int64_t begin) {
    const std::int64_t count = std::min(kBlockCandidates, problem.num_negatives() - begin);
    rows.fill(-1);
    correction.fill(std::numeric_limits<float>::infinity());  // columns that are not there
    for (std::int64_t j = 0; j < count; ++j) {
      const auto column = static_cast<std::size_t>(j);
      rows[column] = problem.negative(0, begin + j);
      correction[column] = problem.correction(rows[column]);
    }
    const auto row_of = [&](std::int64_t j) { return row(j); };
    const auto scale_of = [&](std::int64_t j) { return norms.reading(row(j)); };
    if (problem.half()) {
      block.fill<f16>(cpu, problem.inputs.negative_items.values, count, row_of, scale_of);
    } else {
      block.fill<T>(cpu, problem.inputs.items, count, row_of, scale_of);
    }
  }
  std::int32_t row(std::int64_t j) const { return rows[static_cast<std::size_t>(j)]; }
  LogitRow logit_row(float* scores, std::int32_t positive) const {
    return {scores, correction.data(), rows.data(), positive, block.padded_count()};
  }
};

}  // namespace

template <class T>
void softmax_shared(Cpu cpu, const SoftmaxProblem<T>& problem, const SoftmaxOutput<T>& output) {
  WorkspaceScope scratch(cpu.workspace);
  const SampledSoftmaxInputs<T>& in = problem.inputs;
  const std::int64_t width = problem.width();
  const std::int64_t stride = padded_width(width);
  const InverseNorms<float> norms = take_inverse_norms(cpu, scratch, problem);
  const auto positives = scratch.take<float>(problem.tokens());
  const auto queries = scratch.take<float, 3>({cpu.pool.size(), kTileRows, stride});
  const auto scores = scratch.take<float, 3>({cpu.pool.size(), kTileRows, kBlockCandidates});
  NegativeBlock<T> negatives(scratch, width);
  const auto scale = static_cast<float>(1.0 / problem.options.temperature);
  const auto load_tile = [&](std::int64_t begin, std::int64_t end, int worker) {
    float* tile = &queries(worker, 0, 0);
    for (std::int64_t i = begin; i < end; ++i) {
      widen_padded<T>(cpu.simd, in.query.row(i), norms.query(i) * scale, width,
                      tile + (i - begin) * stride);
    }
    return tile;
  };

  // Between blocks, loss holds the largest logit so far and log_sum_exp the sum beside it.
  parallel_ranges(
      cpu.pool, problem.tokens(), kTileRows, [&](std::int64_t begin, std::int64_t end, int worker) {
        const float* tile = load_tile(begin, end, worker);
        for (std::int64_t i = begin; i < end; ++i) {
          positives(i) =
              scaled_logit(cpu, problem, norms, tile + (i - begin) * stride, in.positive(i));
          output.loss(i) = positives(i);
          output.log_sum_exp(i) = 1.0f;
        }
      });
  for (std::int64_t first = 0; first < problem.num_negatives(); first += kBlockCandidates) {
    negatives.fill(cpu, problem, norms, first);
    parallel_ranges(
        cpu.pool, problem.tokens(), kTileRows,
        [&](std::int64_t begin, std::int64_t end, int worker) {
          const float* tile = load_tile(begin, end, worker);
          float* tile_scores = &scores(worker, 0, 0);
          negatives.block.score(cpu.simd, tile, end - begin, tile_scores);
          for (std::int64_t i = begin; i < end; ++i) {
            tile_table(cpu.simd).add_exp(
                negatives.logit_row(tile_scores + (i - begin) * kBlockCandidates, in.positive(i)),
                &output.loss(i), &output.log_sum_exp(i));
          }
        });
  }
  parallel_ranges(cpu.pool, problem.tokens(), 1024, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float largest = output.loss(i);
      const float log_sum = std::log(output.log_sum_exp(i));
      output.log_sum_exp(i) = largest + log_sum;
      output.loss(i) = largest - positives(i) + log_sum;
    }
  });
}

namespace {

// Backward over a bounded number of tokens.
template <class T>
struct Round {
  Cpu cpu;
  const SoftmaxProblem<T>& problem;
  const InverseNorms<float>& norms;
  std::int64_t stride;        // padded width
  View<float, 2> queries;     // [tokens, stride] u / temperature
  View<float, 2> v;           // [tokens, stride] sum of g * e
  View<float, 2> g;           // [tokens, candidates]
  View<float, 2> item_sums;   // [candidates, stride] sum of g * u / temperature
  View<float, 1> item_along;  // [candidates]
  NegativeBlock<T>& negatives;
  std::int64_t first = 0;
  std::int64_t count = 0;

  void positives(View<const float, 1> log_sum_exp, View<const float, 1> dloss,
                 const ItemPairs& pairs) {
    const SampledSoftmaxInputs<T>& in = problem.inputs;
    const auto scale = static_cast<float>(1.0 / problem.options.temperature);
    parallel_ranges(cpu.pool, count, kTileRows, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t local = begin; local < end; ++local) {
        const std::int64_t i = first + local;
        const float query_scale = norms.query(i) * scale;
        float* query = &queries(local, 0);
        widen_padded<T>(cpu.simd, in.query.row(i), query_scale, problem.width(), query);
        const std::int32_t positive = in.positive(i);
        const float logit = scaled_logit(cpu, problem, norms, query, positive);
        const float gradient = dloss(i) * std::expm1(logit - log_sum_exp(i));
        pairs.set(local, positive, gradient * norms.items(positive) * query_scale,
                  gradient * logit);
        widen_padded<T>(cpu.simd, in.items.row(positive), gradient * norms.items(positive),
                        problem.width(), &v(local, 0));
      }
    });
  }

  void scores(View<const float, 1> log_sum_exp, View<const float, 1> dloss) {
    parallel_ranges(cpu.pool, count, kTileRows, [&](std::int64_t begin, std::int64_t end, int) {
      negatives.block.score(cpu.simd, &queries(begin, 0), end - begin, &g(begin, 0));
      for (std::int64_t local = begin; local < end; ++local) {
        const std::int64_t i = first + local;
        tile_table(cpu.simd).softmax_gradient(
            negatives.logit_row(&g(local, 0), problem.inputs.positive(i)), log_sum_exp(i),
            dloss(i));
      }
      tile_table(cpu.simd).product({.a = &g(begin, 0),
                                    .a_row = kBlockCandidates,
                                    .a_depth = 1,
                                    .b = negatives.block.rows,
                                    .b_depth = stride,
                                    .c = &v(begin, 0),
                                    .c_row = stride,
                                    .rows = end - begin,
                                    .cols = stride,
                                    .depth = negatives.block.count,
                                    .accumulate = true});
    });
  }

  void item_gradients(Rows<float> ditems) {
    constexpr std::int64_t kGroup = 24;   // candidates
    constexpr std::int64_t kDepth = 256;  // tokens whose queries' columns stay in L2
    const CandidateBlock& block = negatives.block;
    const std::int64_t panels = (stride + kPanel - 1) / kPanel;
    const std::int64_t groups = (block.count + kGroup - 1) / kGroup;
    parallel_for(cpu.pool, groups * panels, [&](std::int64_t item, int) {
      const std::int64_t row = item / panels * kGroup;
      const std::int64_t column = item % panels * kPanel;
      for (std::int64_t token = 0; token < count; token += kDepth) {
        tile_table(cpu.simd).product({.a = &g(token, row),
                                      .a_row = 1,
                                      .a_depth = kBlockCandidates,
                                      .b = &queries(token, column),
                                      .b_depth = stride,
                                      .c = &item_sums(row, column),
                                      .c_row = stride,
                                      .rows = std::min(kGroup, block.count - row),
                                      .cols = std::min(kPanel, stride - column),
                                      .depth = std::min(kDepth, count - token),
                                      .accumulate = token > 0});
      }
    });
    const RowTable& table = row_table(cpu.simd);
    parallel_ranges(cpu.pool, block.count, 32, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t j = begin; j < end; ++j) {
        const bool projects = norms.projects(norms.negatives(negatives.row(j)));
        item_along(j) =
            projects ? table.dot(block.rows + j * stride, &item_sums(j, 0), stride) : 0.0f;
      }
    });
    // By columns: a repeated candidate adds twice to one row, in order.
    const std::int64_t width = problem.width();
    parallel_ranges(cpu.pool, width, kPanel, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t j = 0; j < block.count; ++j) {
        float* sums = &item_sums(j, begin);
        table.axpy(-item_along(j), block.rows + j * stride + begin, end - begin, sums);
        table.axpy(norms.negatives(negatives.row(j)), sums, end - begin,
                   ditems.row(negatives.row(j)) + begin);
      }
    });
  }
};

}  // namespace

template <class T>
void softmax_shared_backward(Cpu cpu, const SoftmaxProblem<T>& problem,
                             View<const float, 1> log_sum_exp, View<const float, 1> dloss,
                             Rows<T> dquery, Rows<float> ditems) {
  WorkspaceScope scratch(cpu.workspace);
  const std::int64_t stride = padded_width(problem.width());
  const std::int64_t room = std::min(kRoundTokens, problem.tokens());
  const InverseNorms<float> norms = take_inverse_norms(cpu, scratch, problem);
  NegativeBlock<T> negatives(scratch, problem.width());
  const ItemPairs pairs(scratch, room);
  Round<T> round = {cpu,
                    problem,
                    norms,
                    stride,
                    scratch.take<float, 2>({room, stride}),
                    scratch.take<float, 2>({room, stride}),
                    scratch.take<float, 2>({room, kBlockCandidates}),
                    scratch.take<float, 2>({kBlockCandidates, stride}),
                    scratch.take<float>(kBlockCandidates),
                    negatives};
  for (std::int64_t first = 0; first < problem.tokens(); first += kRoundTokens) {
    round.first = first;
    round.count = std::min(kRoundTokens, problem.tokens() - first);
    round.positives(log_sum_exp, dloss, pairs);
    for (std::int64_t begin = 0; begin < problem.num_negatives(); begin += kBlockCandidates) {
      negatives.fill(cpu, problem, norms, begin);
      round.scores(log_sum_exp, dloss);
      round.item_gradients(ditems);
    }
    parallel_ranges(cpu.pool, round.count, 32, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t local = begin; local < end; ++local) {
        finish_query_gradient(cpu, problem, norms, first + local, &round.queries(local, 0),
                              &round.v(local, 0), dquery);
      }
    });
    add_item_gradients(cpu, problem, norms, pairs, round.count, first, 1, ditems);
  }
}

std::size_t softmax_shared_workspace_bytes(int threads, std::int64_t tokens, std::int64_t width) {
  const std::int64_t stride = padded_width(width);
  const std::int64_t room = std::min(kRoundTokens, tokens);
  const std::size_t forward = workspace_bytes_of<float>(tokens) +
                              workspace_bytes_of<float>(threads * kTileRows * stride) +
                              workspace_bytes_of<float>(threads * kTileRows * kBlockCandidates);
  const std::size_t backward = ItemPairs::workspace_bytes(room) +
                               2 * workspace_bytes_of<float>(room * stride) +
                               workspace_bytes_of<float>(room * kBlockCandidates) +
                               workspace_bytes_of<float>(kBlockCandidates * stride) +
                               workspace_bytes_of<float>(kBlockCandidates);
  return CandidateBlock::workspace_bytes(width) + std::max(forward, backward);
}

#define TGR_INSTANTIATE(T)                                                                      \
  template void softmax_shared<T>(Cpu, const SoftmaxProblem<T>&, const SoftmaxOutput<T>&);      \
  template void softmax_shared_backward<T>(Cpu, const SoftmaxProblem<T>&, View<const float, 1>, \
                                           View<const float, 1>, Rows<T>, Rows<float>);
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
