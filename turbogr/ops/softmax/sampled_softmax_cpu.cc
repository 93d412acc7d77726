#include "turbogr/ops/softmax/sampled_softmax_cpu.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "turbogr/ops/rows/row_simd.h"

namespace turbogr::ops::kernels {
namespace {

template <class A, class T>
A sum_of_squares(SimdLevel simd, const T* x, std::int64_t width) {
  if constexpr (std::is_same_v<A, double>) {
    double sum = 0;
    for (std::int64_t c = 0; c < width; ++c) {
      sum += convert<double>(x[c]) * convert<double>(x[c]);
    }
    return sum;
  } else {
    return row_kernels<T>(simd).sum_of_squares(x, width);
  }
}

// The specification of one token: its logits, one candidate at a time.
struct Token {
  const SoftmaxProblem<double>& problem;
  const InverseNorms<double>& norms;
  std::int64_t index;

  std::int32_t positive() const { return problem.inputs.positive(index); }
  // Element c of the row as it is read, of the positive or of a negative.
  double item(std::int64_t row, std::int64_t c, bool negative) const {
    const auto& in = problem.inputs;
    if (!negative || !problem.half()) return in.items(row, c);
    return convert<double>(in.negative_items.values(row, c)) * in.negative_items.scale(row);
  }
  double inverse(std::int64_t row, bool negative) const {
    return negative ? norms.negatives(row) : norms.items(row);
  }
  double logit(std::int64_t row, bool negative) const {
    double dot = 0;
    for (std::int64_t c = 0; c < problem.width(); ++c) {
      dot += problem.inputs.query(index, c) * item(row, c, negative);
    }
    return dot * norms.query(index) * inverse(row, negative) / problem.options.temperature;
  }
};

// Calls function(query's token, row, logit, corrected logit) for every negative of the token at
// `place` that is not masked, its partners' included.
template <class Function>
void for_each_negative(const SoftmaxProblem<double>& problem, const InverseNorms<double>& norms,
                       std::int64_t place, Function&& function) {
  const std::int32_t self = problem.token_at(place);
  for (std::int64_t m = 0; m < problem.num_sharers(); ++m) {
    const std::int32_t owner = problem.token_at(place + m);
    const Token token = {problem, norms, problem.shares(NegativeSharing::kLogits) ? owner : self};
    for (std::int64_t r = 0; r < problem.num_negatives(); ++r) {
      const std::int32_t row = problem.negative(owner, r);
      if (row == problem.inputs.positive(self) || row == token.positive()) continue;
      const double value = token.logit(row, /*negative=*/true);
      function(token.index, row, value, value - problem.correction(row));
    }
  }
}

}  // namespace

template <class T>
InverseNorms<Accum<T>> take_inverse_norms(Cpu cpu, WorkspaceScope& scratch,
                                          const SoftmaxProblem<T>& problem) {
  using A = Accum<T>;
  const SoftmaxOptions& options = problem.options;
  InverseNorms<A> norms = {};
  norms.query = scratch.take<A>(problem.tokens());
  norms.items = scratch.take<A>(problem.inputs.items.rows);
  const auto eps = static_cast<A>(options.eps);
  if (options.normalize) norms.clamped = A{1} / eps;
  const auto fill = [&](Rows<const T> x, View<A, 1> inverse) {
    parallel_ranges(cpu.pool, x.rows, 256, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t r = begin; r < end; ++r) {
        inverse(r) =
            options.normalize
                ? A{1} / std::max(std::sqrt(sum_of_squares<A>(cpu.simd, x.row(r), x.cols)), eps)
                : A{1};
      }
    });
  };
  fill(problem.inputs.query, norms.query);
  fill(problem.inputs.items, norms.items);
  norms.negatives = norms.reading = norms.items;
  if (!problem.half()) return norms;

  const HalfRows& half = problem.inputs.negative_items;
  norms.negatives = scratch.take<A>(half.rows());
  norms.reading = scratch.take<A>(half.rows());
  parallel_ranges(cpu.pool, half.rows(), 256, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const auto scale = static_cast<A>(half.scale(r));
      const A length =
          std::sqrt(sum_of_squares<A>(cpu.simd, half.values.row(r), half.values.cols)) * scale;
      norms.negatives(r) = options.normalize ? A{1} / std::max(length, eps) : A{1};
      norms.reading(r) = norms.negatives(r) * scale;
    }
  });
  return norms;
}

template InverseNorms<float> take_inverse_norms<float>(Cpu, WorkspaceScope&,
                                                       const SoftmaxProblem<float>&);
template InverseNorms<float> take_inverse_norms<bf16>(Cpu, WorkspaceScope&,
                                                      const SoftmaxProblem<bf16>&);

// f64 is the specification.
template <>
void softmax<double>(Cpu cpu, const SoftmaxProblem<double>& problem,
                     const SoftmaxOutput<double>& output) {
  WorkspaceScope scratch(cpu.workspace);
  const InverseNorms<double> norms = take_inverse_norms(cpu, scratch, problem);
  parallel_for(cpu.pool, problem.tokens(), [&](std::int64_t place, int) {
    const std::int64_t i = problem.token_at(place);
    const Token token = {problem, norms, i};
    const double positive = token.logit(token.positive(), /*negative=*/false);
    double largest = positive;
    for_each_negative(problem, norms, place, [&](std::int64_t, std::int32_t, double, double logit) {
      largest = std::max(largest, logit);
    });
    double sum = std::exp(positive - largest);
    for_each_negative(problem, norms, place, [&](std::int64_t, std::int32_t, double, double logit) {
      sum += std::exp(logit - largest);
    });
    output.log_sum_exp(i) = largest + std::log(sum);
    output.loss(i) = largest - positive + std::log(sum);
  });
}

template <>
void softmax_backward<double>(Cpu cpu, const SoftmaxProblem<double>& problem,
                              View<const double, 1> log_sum_exp, View<const double, 1> dloss,
                              Rows<double> dquery, Rows<double> ditems) {
  WorkspaceScope scratch(cpu.workspace);
  const InverseNorms<double> norms = take_inverse_norms(cpu, scratch, problem);
  const auto& in = problem.inputs;
  const double scale = 1.0 / problem.options.temperature;
  // d logit / dx = (e - u (u . e)) / (|x| temperature); the item's side alike.
  const auto add = [&](std::int64_t i, std::int32_t row, bool negative, double logit, double g) {
    const Token token = {problem, norms, i};
    const double inverse = norms.query(i);
    const double item_inverse = token.inverse(row, negative);
    const double cosine = logit / scale;
    for (std::int64_t c = 0; c < problem.width(); ++c) {
      const double u = in.query(i, c) * inverse;
      const double e = token.item(row, c, negative) * item_inverse;
      dquery(i, c) += g * scale * inverse * (e - (norms.projects(inverse) ? u * cosine : 0));
      ditems(row, c) +=
          g * scale * item_inverse * (u - (norms.projects(item_inverse) ? e * cosine : 0));
    }
  };
  for (std::int64_t i = 0; i < problem.tokens(); ++i) {
    for (std::int64_t c = 0; c < problem.width(); ++c) dquery(i, c) = 0;
  }
  for (std::int64_t place = 0; place < problem.tokens(); ++place) {
    const std::int64_t i = problem.token_at(place);
    const Token token = {problem, norms, i};
    const double positive = token.logit(token.positive(), /*negative=*/false);
    add(i, token.positive(), false, positive, dloss(i) * std::expm1(positive - log_sum_exp(i)));
    for_each_negative(problem, norms, place,
                      [&](std::int64_t query, std::int32_t row, double logit, double corrected) {
                        add(query, row, true, logit,
                            dloss(i) * std::exp(corrected - log_sum_exp(i)));
                      });
  }
}

#define TGR_DEFINE(T)                                                                          \
  template <>                                                                                  \
  void softmax<T>(Cpu cpu, const SoftmaxProblem<T>& problem, const SoftmaxOutput<T>& output) { \
    if (problem.candidates == Candidates::kOwn) {                                              \
      softmax_own<T>(cpu, problem, output);                                                    \
    } else {                                                                                   \
      softmax_shared<T>(cpu, problem, output);                                                 \
    }                                                                                          \
  }                                                                                            \
  template <>                                                                                  \
  void softmax_backward<T>(Cpu cpu, const SoftmaxProblem<T>& problem,                          \
                           View<const float, 1> log_sum_exp, View<const float, 1> dloss,       \
                           Rows<T> dquery, Rows<float> ditems) {                               \
    if (problem.candidates == Candidates::kOwn) {                                              \
      softmax_own_backward<T>(cpu, problem, log_sum_exp, dloss, dquery, ditems);               \
    } else {                                                                                   \
      softmax_shared_backward<T>(cpu, problem, log_sum_exp, dloss, dquery, ditems);            \
    }                                                                                          \
  }
TGR_DEFINE(float)
TGR_DEFINE(bf16)
#undef TGR_DEFINE

std::size_t softmax_workspace_bytes(Cpu cpu, std::int64_t tokens, std::int64_t items,
                                    std::int64_t width, std::int64_t own_negatives,
                                    const SoftmaxOptions& options) {
  const int threads = cpu.pool.size();
  const std::size_t norms =
      workspace_bytes_of<double>(tokens) + 3 * workspace_bytes_of<double>(items);
  const std::size_t own =
      softmax_own_workspace_bytes(threads, tokens, width, own_negatives, options);
  if (own_negatives > 0) return norms + own;
  return norms + std::max(own, softmax_shared_workspace_bytes(threads, tokens, width));
}

}  // namespace turbogr::ops::kernels
