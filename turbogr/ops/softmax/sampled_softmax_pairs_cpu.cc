#include <algorithm>
#include <bit>

#include "turbogr/ops/rows/row_simd.h"
#include "turbogr/ops/softmax/sampled_softmax_cpu.h"

namespace turbogr::ops::kernels {

ItemPairs::ItemPairs(WorkspaceScope& scratch, std::int64_t count)
    : pairs(scratch.take<Keyed<std::uint32_t>>(count).data),
      spare(scratch.take<Keyed<std::uint32_t>>(count).data),
      terms(scratch.take<Term>(count).data),
      histogram(scratch.take<std::uint32_t>(radix_histogram_size(count))) {}

std::size_t ItemPairs::workspace_bytes(std::int64_t count) {
  return 2 * workspace_bytes_of<Keyed<std::uint32_t>>(count) + workspace_bytes_of<Term>(count) +
         workspace_bytes_of<std::uint32_t>(radix_histogram_size(count));
}

template <class T>
void add_item_gradients(Cpu cpu, const SoftmaxProblem<T>& problem, const InverseNorms<float>& norms,
                        const ItemPairs& pairs, std::int64_t count, std::int64_t first_place,
                        std::int64_t pairs_per_token, Rows<float> ditems) {
  // Cut as in sum_groups of embedding_cpu.cc: a piece owns the items whose pairs start in it; an
  // item with very many pairs is cut by columns.
  constexpr std::int64_t kPiece = 512;
  constexpr std::int64_t kLarge = 2048;
  constexpr std::int64_t kStrip = 128;
  constexpr std::int64_t kWide = 512;
  constexpr std::int64_t kBatch = 256;
  constexpr std::int64_t kAhead = 32;  // pairs, whose terms are anywhere
  const auto bits =
      static_cast<int>(std::bit_width(static_cast<std::uint32_t>(problem.num_items())));
  const Keyed<std::uint32_t>* sorted =
      radix_sort(cpu.pool, pairs.pairs, pairs.spare, count, bits, pairs.histogram);
  const RowKernels<T>& rows = row_kernels<T>(cpu.simd);
  const RowTable& table = row_table(cpu.simd);
  const Rows<const T> query = problem.inputs.query;
  const auto per_token = static_cast<std::uint32_t>(pairs_per_token);  // as p: half the division

  const auto add_columns = [&](std::int64_t begin, std::int64_t end, std::int64_t column,
                               std::int64_t cols) {
    float sums[kWide] = {};
    float along[2] = {};  // of rows read from items, and from f16 rows
    bool has[2] = {};
    std::int32_t tokens[kBatch];
    float weights[kBatch];
    for (std::int64_t first = begin; first < end; first += kBatch) {
      const std::int64_t batch = std::min(kBatch, end - first);
      for (std::int64_t j = 0; j < batch; ++j) {
        const std::uint32_t p = sorted[first + j].position;
        if (first + j + kAhead < count) {
          __builtin_prefetch(&pairs.terms[sorted[first + j + kAhead].position]);
        }
        const ItemPairs::Term& term = pairs.terms[p];
        tokens[j] = problem.token_at(first_place + p / per_token);
        weights[j] = term.weight;
        const std::size_t kind = problem.half() && p % per_token != 0 ? 1 : 0;
        along[kind] += term.along;
        has[kind] = true;
      }
      rows.add(query.data + column, query.stride, tokens, weights, batch, cols, sums);
    }
    const std::int64_t item = sorted[begin].key;
    float item_part[kWide];
    if (has[0] && norms.projects(norms.items(item))) {
      const float factor = norms.items(item) * norms.items(item) * along[0];
      rows.widen(problem.inputs.items.row(item) + column, factor, cols, item_part);
      table.axpy(-1.0f, item_part, cols, sums);
    }
    if (has[1] && norms.projects(norms.negatives(item))) {
      const float factor = norms.negatives(item) * norms.reading(item) * along[1];
      row_kernels<f16>(cpu.simd).widen(problem.inputs.negative_items.values.row(item) + column,
                                       factor, cols, item_part);
      table.axpy(-1.0f, item_part, cols, sums);
    }
    table.axpy(1.0f, sums, cols, ditems.row(item) + column);
  };
  const auto starts = [&](std::int64_t p) { return p == 0 || sorted[p].key != sorted[p - 1].key; };
  const auto end_of = [&](std::int64_t p) {
    const std::uint32_t key = sorted[p].key;
    while (p < count && sorted[p].key == key) ++p;
    return p;
  };
  const std::int64_t width = problem.width();
  parallel_ranges(cpu.pool, count, kPiece, [&](std::int64_t begin, std::int64_t end, int) {
    while (begin < end && !starts(begin)) ++begin;
    while (begin < end) {
      const std::int64_t stop = end_of(begin);
      for (std::int64_t c = 0; c < width && stop - begin < kLarge; c += kWide) {
        add_columns(begin, stop, c, std::min(kWide, width - c));
      }
      begin = stop;
    }
  });
  const std::int64_t strips = (width + kStrip - 1) / kStrip;
  const std::int64_t pieces = (count + kPiece - 1) / kPiece;
  parallel_for(cpu.pool, pieces * strips, [&](std::int64_t item, int) {
    // Longer than a piece, so it is the one that holds the piece's last pair and starts in it.
    const std::int64_t last = std::min(count, (item / strips + 1) * kPiece) - 1;
    if (last + kLarge - kPiece >= count || sorted[last + kLarge - kPiece].key != sorted[last].key) {
      return;
    }
    std::int64_t begin = last;
    while (begin > item / strips * kPiece && !starts(begin)) --begin;
    if (!starts(begin)) return;
    const std::int64_t stop = end_of(begin);
    if (stop - begin < kLarge) return;
    const std::int64_t column = item % strips * kStrip;
    add_columns(begin, stop, column, std::min(kStrip, width - column));
  });
}

template <class T>
void dot_negatives(Cpu cpu, const SoftmaxProblem<T>& problem, const float* query,
                   const std::int32_t* rows, std::int64_t count, float* out) {
  const SampledSoftmaxInputs<T>& in = problem.inputs;
  if (problem.half()) {
    const Rows<const f16> half = in.negative_items.values;
    row_kernels<f16>(cpu.simd).dot(query, half.data, half.stride, rows, count, half.cols, out);
  } else {
    row_kernels<T>(cpu.simd).dot(query, in.items.data, in.items.stride, rows, count, in.items.cols,
                                 out);
  }
}

template <class T>
void add_negatives(Cpu cpu, const SoftmaxProblem<T>& problem, const std::int32_t* rows,
                   const float* weights, std::int64_t count, float* out) {
  const SampledSoftmaxInputs<T>& in = problem.inputs;
  if (problem.half()) {
    const Rows<const f16> half = in.negative_items.values;
    row_kernels<f16>(cpu.simd).add(half.data, half.stride, rows, weights, count, half.cols, out);
  } else {
    row_kernels<T>(cpu.simd).add(in.items.data, in.items.stride, rows, weights, count,
                                 in.items.cols, out);
  }
}

template <class T>
float scaled_logit(Cpu cpu, const SoftmaxProblem<T>& problem, const InverseNorms<float>& norms,
                   const float* scaled_query, std::int32_t row) {
  float value = 0;
  row_kernels<T>(cpu.simd).dot(scaled_query, problem.inputs.items.data, problem.inputs.items.stride,
                               &row, 1, problem.width(), &value);
  return value * norms.items(row);
}

template <class T>
void finish_query_gradient(Cpu cpu, const SoftmaxProblem<T>& problem,
                           const InverseNorms<float>& norms, std::int64_t token,
                           const float* scaled_query, float* v, Rows<T> dquery) {
  const RowTable& table = row_table(cpu.simd);
  const auto temperature = static_cast<float>(problem.options.temperature);
  const float inverse = norms.query(token);
  if (norms.projects(inverse)) {
    // scaled_query is u / temperature.
    const float along = table.dot(scaled_query, v, problem.width());
    table.axpy(-along * temperature * temperature, scaled_query, problem.width(), v);
  }
  row_kernels<T>(cpu.simd).narrow(v, inverse / temperature, problem.width(), dquery.row(token));
}

#define TGR_INSTANTIATE(T)                                                                         \
  template void add_item_gradients<T>(Cpu, const SoftmaxProblem<T>&, const InverseNorms<float>&,   \
                                      const ItemPairs&, std::int64_t, std::int64_t, std::int64_t,  \
                                      Rows<float>);                                                \
  template void dot_negatives<T>(Cpu, const SoftmaxProblem<T>&, const float*, const std::int32_t*, \
                                 std::int64_t, float*);                                            \
  template void add_negatives<T>(Cpu, const SoftmaxProblem<T>&, const std::int32_t*, const float*, \
                                 std::int64_t, float*);                                            \
  template float scaled_logit<T>(Cpu, const SoftmaxProblem<T>&, const InverseNorms<float>&,        \
                                 const float*, std::int32_t);                                      \
  template void finish_query_gradient<T>(Cpu, const SoftmaxProblem<T>&,                            \
                                         const InverseNorms<float>&, std::int64_t, const float*,   \
                                         float*, Rows<T>);
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
