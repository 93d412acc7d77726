// What a device fills in for sampled_softmax.h.
#pragma once

#include "turbogr/ops/sampled_softmax.h"

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
  // The row of the r-th candidate of a token.
  std::int32_t negative(std::int64_t token, std::int64_t r) const {
    return candidates == Candidates::kOwn      ? inputs.negatives(token, r)
           : candidates == Candidates::kShared ? inputs.shared_negatives(r)
                                               : static_cast<std::int32_t>(r);
  }
  Accum<T> correction(std::int64_t row) const {
    return inputs.correction.empty() ? Accum<T>{0} : inputs.correction(row);
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

std::size_t softmax_workspace_bytes(Cpu cpu, std::int64_t tokens, std::int64_t items,
                                    std::int64_t width, std::int64_t own_negatives);
std::size_t softmax_workspace_bytes(Cuda cuda, std::int64_t tokens, std::int64_t items,
                                    std::int64_t width, std::int64_t own_negatives);

}  // namespace turbogr::ops::kernels
