// Shared by the CUDA kernels of sampled_softmax.h.
//
// With u = q / |q| and e = item / |item|, a pair's gradient g reaches the query as g e / (|q|
// temperature) and the item as g u / (|item| temperature). One weight, g / (|q| |item|
// temperature), times the rows as they are stands for both; what lies along u, or along e, is taken
// out of the sums at their end.
#pragma once

#include "turbogr/ops/rows/segment_sum_cuda.cuh"
#include "turbogr/ops/rows/sort_cuda.h"
#include "turbogr/ops/softmax/sampled_softmax_kernels.h"

namespace turbogr::ops::kernels {

// A product that is rounded by itself: a logit must have the same bits in both passes, whatever is
// subtracted from it.
__device__ inline float rounded_product(float x, float y) { return __fmul_rn(x, y); }
__device__ inline double rounded_product(double x, double y) { return __dmul_rn(x, y); }

// 1 / max(|row|, eps), or ones without normalisation.
template <class A>
struct CudaNorms {
  A* query;      // [N]
  A* items;      // [U]
  A* negatives;  // [U], of the rows negatives are read from
  A* reading;    // [U]: stored values of a negative's row times this are its unit row
  A clamped;     // an inverse at or above this came from eps: its row's length has no gradient

  __device__ bool projects(A inverse) const { return inverse < clamped; }
};

template <class T>
CudaNorms<Accum<T>> take_norms(Cuda cuda, WorkspaceScope& scope, const SoftmaxProblem<T>& problem);

// Terms of item gradients: `keys` [P] rows of items, `index` [P] what the term is: below `rows` <<
// shift a token (index >> shift, through `order` if there is one; its query times weight(index)),
// else a row of `set_sums`.
template <class T>
struct ItemTerms {
  std::uint32_t* keys;
  std::uint32_t* index;
  std::int64_t count;
  const Accum<T>* weight;
  int shift;
  Rows<const T> query;
  const Accum<T>* set_sums;             // [R, D]
  const std::int32_t* set_places;       // [R], their rows of items
  const std::int32_t* order = nullptr;  // rows of query
  bool of_negatives = false;            // of the f16 rows, not of items
};

// Sums the terms of each row of items and adds them to ditems.
template <class T>
void add_item_terms(Cuda cuda, const SoftmaxProblem<T>& problem, const CudaNorms<Accum<T>>& norms,
                    const ItemTerms<T>& terms, Rows<Accum<T>> ditems);
std::size_t item_terms_workspace_bytes(std::int64_t count, std::int64_t width);

// The two ways to make the scores.
template <class T>
void softmax_own(Cuda cuda, const SoftmaxProblem<T>& problem, const SoftmaxOutput<T>& output);
template <class T>
void softmax_own_backward(Cuda cuda, const SoftmaxProblem<T>& problem,
                          View<const Accum<T>, 1> log_sum_exp, View<const Accum<T>, 1> dloss,
                          Rows<T> dquery, Rows<Accum<T>> ditems);
template <class T>
void softmax_shared(Cuda cuda, const SoftmaxProblem<T>& problem, const SoftmaxOutput<T>& output);
template <class T>
void softmax_shared_backward(Cuda cuda, const SoftmaxProblem<T>& problem,
                             View<const Accum<T>, 1> log_sum_exp, View<const Accum<T>, 1> dloss,
                             Rows<T> dquery, Rows<Accum<T>> ditems);
// Both at once, the scores made once; false where one set does not hold all candidates, and then
// nothing is done.
template <class T>
bool softmax_shared_with_gradients(Cuda cuda, const SoftmaxProblem<T>& problem,
                                   View<const Accum<T>, 1> dloss, const SoftmaxOutput<T>& output,
                                   Rows<T> dquery, Rows<Accum<T>> ditems);
// Both at once, tokens not sharing logits.
template <class T>
void softmax_own_single_pass(Cuda cuda, const SoftmaxProblem<T>& problem,
                             View<const Accum<T>, 1> dloss, const SoftmaxOutput<T>& output,
                             Rows<T> dquery, Rows<Accum<T>> ditems);
std::size_t cuda_shared_logits_workspace_bytes(std::int64_t tokens, std::int64_t num_negatives,
                                               std::int64_t num_sharers);
std::size_t cuda_own_workspace_bytes(std::int64_t tokens, std::int64_t width,
                                     std::int64_t num_negatives, const SoftmaxOptions& options);
std::size_t cuda_shared_workspace_bytes(std::int64_t tokens, std::int64_t width);

}  // namespace turbogr::ops::kernels
