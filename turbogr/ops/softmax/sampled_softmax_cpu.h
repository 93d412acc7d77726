// Shared by the CPU kernels of sampled_softmax.h: norms, and the sum of item gradients.
//
// P pairs (item row, token), kept for a bounded number of tokens at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/ops/rows/radix_sort.h"
#include "turbogr/ops/softmax/sampled_softmax_kernels.h"

namespace turbogr::ops::kernels {

// 1 / max(|row|, eps), or 1 without normalisation.
template <class A>
struct InverseNorms {
  View<A, 1> query;      // [N]
  View<A, 1> items;      // [U]
  View<A, 1> negatives;  // [U], of the rows negatives are read from
  View<A, 1> reading;    // [U]: stored values of a negative's row times this are its unit row
  A clamped;  // an inverse at or above this came from eps: its row's length has no gradient

  bool projects(A inverse) const { return inverse < clamped; }
};

template <class T>
InverseNorms<Accum<T>> take_inverse_norms(Cpu cpu, WorkspaceScope& scratch,
                                          const SoftmaxProblem<T>& problem);

// The terms of item gradients, one a pair: ditem += sum of weight * query
//   - inverse norm * item / |item| * sum of along. Pair p belongs to the token at first_place + p /
//   pairs_per_token; the first pair of a token is its positive.
struct ItemPairs {
  Keyed<std::uint32_t>* pairs;  // [P] key: the item's row, position: p
  Keyed<std::uint32_t>* spare;  // [P]
  // Beside each other: the sum over an item's pairs finds them at random places.
  struct Term {
    float weight, along;
  };
  Term* terms;  // [P]
  View<std::uint32_t, 1> histogram;

  ItemPairs(WorkspaceScope& scratch, std::int64_t count);
  static std::size_t workspace_bytes(std::int64_t count);

  void set(std::int64_t p, std::int32_t row, float weight, float along) const {
    pairs[p] = {static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(p)};
    terms[p] = {weight, along};
  }
};

// Adds the pairs of each item in the order of places; the order never depends on threads.
template <class T>
void add_item_gradients(Cpu cpu, const SoftmaxProblem<T>& problem, const InverseNorms<float>& norms,
                        const ItemPairs& pairs, std::int64_t count, std::int64_t first_place,
                        std::int64_t pairs_per_token, Rows<float> ditems);

// Dot products with, and weighted sums of, the rows that negatives are read from: as stored.
template <class T>
void dot_negatives(Cpu cpu, const SoftmaxProblem<T>& problem, const float* query,
                   const std::int32_t* rows, std::int64_t count, float* out);
template <class T>
void add_negatives(Cpu cpu, const SoftmaxProblem<T>& problem, const std::int32_t* rows,
                   const float* weights, std::int64_t count, float* out);

// x . item / (|x| |item| temperature) for one positive, the query already scaled.
template <class T>
float scaled_logit(Cpu cpu, const SoftmaxProblem<T>& problem, const InverseNorms<float>& norms,
                   const float* scaled_query, std::int32_t row);

// dquery of one token from v = sum of g * item / |item|; changes v.
template <class T>
void finish_query_gradient(Cpu cpu, const SoftmaxProblem<T>& problem,
                           const InverseNorms<float>& norms, std::int64_t token,
                           const float* scaled_query, float* v, Rows<T> dquery);

// The two ways to make the scores; T is float or bf16.
template <class T>
void softmax_own(Cpu cpu, const SoftmaxProblem<T>& problem, const SoftmaxOutput<T>& output);
template <class T>
void softmax_own_backward(Cpu cpu, const SoftmaxProblem<T>& problem,
                          View<const float, 1> log_sum_exp, View<const float, 1> dloss,
                          Rows<T> dquery, Rows<float> ditems);
template <class T>
void softmax_shared(Cpu cpu, const SoftmaxProblem<T>& problem, const SoftmaxOutput<T>& output);
template <class T>
void softmax_shared_backward(Cpu cpu, const SoftmaxProblem<T>& problem,
                             View<const float, 1> log_sum_exp, View<const float, 1> dloss,
                             Rows<T> dquery, Rows<float> ditems);

std::size_t softmax_own_workspace_bytes(int threads, std::int64_t tokens, std::int64_t width,
                                        std::int64_t num_negatives, const SoftmaxOptions& options);
std::size_t softmax_shared_workspace_bytes(int threads, std::int64_t tokens, std::int64_t width);

}  // namespace turbogr::ops::kernels
