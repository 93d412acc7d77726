// What a device fills in for sampled_softmax.h.
#pragma once

#include <algorithm>

#include "turbogr/ops/softmax/sampled_softmax.h"

namespace turbogr::ops::kernels {

// Who competes with the positive.
enum class Candidates { kOwn, kShared, kAll };

template <class T>
struct SoftmaxProblem {
  SampledSoftmaxInputs<T> inputs;
  Candidates candidates;
  SoftmaxOptions options;

  std::int64_t tokens() const { return inputs.query.rows; }
  std::int64_t width() const { return inputs.query.cols; }
  std::int64_t num_negatives() const {
    return candidates == Candidates::kOwn      ? inputs.negatives.shape[1]
           : candidates == Candidates::kShared ? inputs.shared_negatives.shape[0]
                                               : inputs.items.rows;
  }
  bool half() const { return !inputs.negative_items.empty(); }
  std::int64_t num_items() const {
    return half() ? inputs.negative_items.rows() : inputs.items.rows;
  }
  // The row of the r-th candidate of a token.
  std::int32_t negative(std::int64_t token, std::int64_t r) const {
    return candidates == Candidates::kOwn      ? inputs.negatives(token, r)
           : candidates == Candidates::kShared ? inputs.shared_negatives(r)
                                               : static_cast<std::int32_t>(r);
  }
  Accum<T> correction(std::int64_t row) const {
    return inputs.correction.empty() ? Accum<T>{0} : inputs.correction(row);
  }

  // Sharing. Tokens stand in a ring; without sharing in the order they come.
  bool shares(NegativeSharing reading) const {
    return options.sharing == reading && num_sharers() > 1;
  }
  std::int64_t num_sharers() const {
    return options.sharing == NegativeSharing::kNone ? 1
                                                     : std::min(options.sharing_factor, tokens());
  }
  // The token at a place of the ring; places from -tokens() to 2 * tokens() - 1 go round.
  std::int32_t token_at(std::int64_t place) const {
    if (place >= tokens()) place -= tokens();
    if (place < 0) place += tokens();
    return inputs.order.empty() ? static_cast<std::int32_t>(place) : inputs.order(place);
  }
};

template <class T>
void softmax(Cpu cpu, const SoftmaxProblem<T>& problem, const SoftmaxOutput<T>& output);
template <class T>
void softmax(Cuda cuda, const SoftmaxProblem<T>& problem, const SoftmaxOutput<T>& output);

template <class T>
void softmax_backward(Cpu cpu, const SoftmaxProblem<T>& problem,
                      View<const Accum<T>, 1> log_sum_exp, View<const Accum<T>, 1> dloss,
                      Rows<T> dquery, Rows<Accum<T>> ditems);
template <class T>
void softmax_backward(Cuda cuda, const SoftmaxProblem<T>& problem,
                      View<const Accum<T>, 1> log_sum_exp, View<const Accum<T>, 1> dloss,
                      Rows<T> dquery, Rows<Accum<T>> ditems);

// Both at once, as far as that spares work.
template <class T>
void softmax_with_gradients(Cpu cpu, const SoftmaxProblem<T>& problem,
                            View<const Accum<T>, 1> dloss, const SoftmaxOutput<T>& output,
                            Rows<T> dquery, Rows<Accum<T>> ditems) {
  softmax<T>(cpu, problem, output);
  softmax_backward<T>(cpu, problem, output.log_sum_exp, dloss, dquery, ditems);
}
template <class T>
void softmax_with_gradients(Cuda cuda, const SoftmaxProblem<T>& problem,
                            View<const Accum<T>, 1> dloss, const SoftmaxOutput<T>& output,
                            Rows<T> dquery, Rows<Accum<T>> ditems);

std::size_t softmax_workspace_bytes(Cpu cpu, std::int64_t tokens, std::int64_t items,
                                    std::int64_t width, std::int64_t own_negatives,
                                    const SoftmaxOptions& options);
std::size_t softmax_workspace_bytes(Cuda cuda, std::int64_t tokens, std::int64_t items,
                                    std::int64_t width, std::int64_t own_negatives,
                                    const SoftmaxOptions& options);

// The specification, in f64, has sources of its own.
template <>
void softmax<double>(Cpu cpu, const SoftmaxProblem<double>& problem,
                     const SoftmaxOutput<double>& output);
template <>
void softmax_backward<double>(Cpu cpu, const SoftmaxProblem<double>& problem,
                              View<const double, 1> log_sum_exp, View<const double, 1> dloss,
                              Rows<double> dquery, Rows<double> ditems);

}  // namespace turbogr::ops::kernels
