#include <algorithm>
#include <bit>

#include "turbogr/ops/convert_kernels.h"
#include "turbogr/ops/sampled_softmax_cuda.cuh"

namespace turbogr::ops::kernels {
namespace {

using cuda::Eight;
using cuda::kColumns;

template <class T, bool kVector>
struct TermRows {
  const std::uint32_t* index;  // sorted
  std::uint32_t first_set;     // rows << shift
  ItemTerms<T> terms;

  struct Ref {
    std::uint32_t row;  // of the queries, or of the set's sums
    bool of_set;
    Accum<T> weight;
  };
  __device__ Ref refer(std::int64_t entry) const {
    const std::uint32_t i = index[entry];
    if (i >= first_set) return {i - first_set, true, Accum<T>(1)};
    const auto place = static_cast<std::int64_t>(i >> terms.shift);
    const std::int64_t token = terms.order == nullptr ? place : terms.order[place];
    return {static_cast<std::uint32_t>(token), false, terms.weight[i]};
  }
  __device__ Eight<Accum<T>> load(const Ref& ref, std::int64_t c) const {
    const std::int64_t left = terms.query.cols - c;
    if (ref.of_set) {
      return cuda::load8<kVector>(terms.set_sums + ref.row * terms.query.cols + c, left);
    }
    auto row = cuda::load8<kVector>(terms.query.row(ref.row) + c, left);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) row[j] *= ref.weight;
    return row;
  }
};

// ditem += sum - e (e . sum)
template <class T, bool kVector>
struct AddProjected {
  Rows<const T> items;
  CudaNorms<Accum<T>> norms;
  Rows<Accum<T>> ditems;

  __device__ void operator()(std::uint32_t row, std::int64_t c, Eight<Accum<T>>& sum,
                             Accum<T>* shared) const {
    using A = Accum<T>;
    if (row >= items.rows) return;  // the whole block: the row is the run's
    const std::int64_t left = items.cols - c;
    const A inverse = norms.items[row];
    if (norms.projects(inverse)) {
      Eight<A> item = {};
      A along[1] = {0};
      if (left > 0) item = cuda::load8<kVector>(items.row(row) + c, left);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) along[0] += item[i] * sum[i];
      cuda::team_sum(along, shared);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) sum[i] -= item[i] * (along[0] * inverse * inverse);
    }
    if (left <= 0) return;
    A* to = ditems.row(row) + c;
    const auto before = cuda::load8<kVector>(to, left);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) sum[i] += before[i];
    cuda::store8<kVector>(to, left, sum);
  }
};

}  // namespace

template <class T>
CudaNorms<Accum<T>> take_norms(Cuda cuda, WorkspaceScope& scope, const SoftmaxProblem<T>& problem) {
  using A = Accum<T>;
  const SoftmaxOptions& options = problem.options;
  const auto query = scope.take<A>(problem.tokens());
  const auto items = scope.take<A>(problem.inputs.items.rows);
  if (options.normalize) {
    inverse_norms<T>(cuda, problem.inputs.query, options.eps, query);
    inverse_norms<T>(cuda, problem.inputs.items, options.eps, items);
  } else {
    fill<A>(cuda, A(1), query);
    fill<A>(cuda, A(1), items);
  }
  return {query.data, items.data, options.normalize ? A(1) / static_cast<A>(options.eps) : A(0)};
}

template <class T>
void add_item_terms(Cuda cuda, const SoftmaxProblem<T>& problem, const CudaNorms<Accum<T>>& norms,
                    const ItemTerms<T>& terms, Rows<Accum<T>> ditems) {
  const Rows<const T> items = problem.inputs.items;
  cudaStream_t stream = cuda::stream_of(cuda.stream);
  WorkspaceScope scope(cuda.workspace);
  std::uint32_t* keys = scope.take<std::uint32_t>(terms.count).data;
  std::uint32_t* index = scope.take<std::uint32_t>(terms.count).data;
  {
    WorkspaceScope sorting(cuda.workspace);
    const std::size_t bytes = sort_pairs_bytes<std::uint32_t>(terms.count);
    void* scratch = sorting.take<unsigned char>(static_cast<std::int64_t>(bytes)).data;
    const int bits =
        std::max(1, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(items.rows))));
    sort_pairs<std::uint32_t>(stream, terms.keys, keys, terms.index, index, terms.count, bits,
                              scratch, bytes);
  }
  const auto first_set = static_cast<std::uint32_t>(terms.query.rows << terms.shift);
  const bool vectors =
      cuda::vectorable(terms.query) && cuda::vectorable(items) && cuda::vectorable(ditems);
  cuda::choose_vector<T>(vectors, [&](auto vector) {
    const TermRows<T, vector.value> source = {index, first_set, terms};
    const AddProjected<T, vector.value> finish = {items, norms, ditems};
    segment_sum<Accum<T>>(stream, cuda.workspace, keys, terms.count, items.cols, source, finish);
  });
  cuda::check_launch("sampled_softmax_backward");
}

std::size_t item_terms_workspace_bytes(std::int64_t count, std::int64_t width) {
  return 2 * workspace_bytes_of<std::uint32_t>(count) +
         std::max(workspace_bytes_of<unsigned char>(
                      static_cast<std::int64_t>(sort_pairs_bytes<std::uint32_t>(count))),
                  segment_workspace_bytes<double>(count, width));
}

template <class T>
void softmax(Cuda cuda, const SoftmaxProblem<T>& problem, const SoftmaxOutput<T>& output) {
  cuda::check_width("sampled_softmax", problem.width());
  if (problem.candidates == Candidates::kOwn) {
    softmax_own<T>(cuda, problem, output);
  } else {
    softmax_shared<T>(cuda, problem, output);
  }
}

template <class T>
void softmax_backward(Cuda cuda, const SoftmaxProblem<T>& problem,
                      View<const Accum<T>, 1> log_sum_exp, View<const Accum<T>, 1> dloss,
                      Rows<T> dquery, Rows<Accum<T>> ditems) {
  cuda::check_width("sampled_softmax_backward", problem.width());
  if (problem.candidates == Candidates::kOwn) {
    softmax_own_backward<T>(cuda, problem, log_sum_exp, dloss, dquery, ditems);
  } else {
    softmax_shared_backward<T>(cuda, problem, log_sum_exp, dloss, dquery, ditems);
  }
}

template <class T>
void softmax_with_gradients(Cuda cuda, const SoftmaxProblem<T>& problem,
                            View<const Accum<T>, 1> dloss, const SoftmaxOutput<T>& output,
                            Rows<T> dquery, Rows<Accum<T>> ditems) {
  cuda::check_width("sampled_softmax_with_gradients", problem.width());
  if (problem.candidates != Candidates::kOwn &&
      softmax_shared_with_gradients<T>(cuda, problem, dloss, output, dquery, ditems)) {
    return;
  }
  softmax<T>(cuda, problem, output);
  softmax_backward<T>(cuda, problem, output.log_sum_exp, dloss, dquery, ditems);
}

std::size_t softmax_workspace_bytes(Cuda, std::int64_t tokens, std::int64_t items,
                                    std::int64_t width, std::int64_t own_negatives,
                                    const SoftmaxOptions& options) {
  const std::size_t norms = workspace_bytes_of<double>(tokens) + workspace_bytes_of<double>(items);
  if (own_negatives > 0) {
    return norms + cuda_own_workspace_bytes(tokens, width, own_negatives, options);
  }
  return norms + cuda_shared_workspace_bytes(tokens, items, width);
}

#define TGR_INSTANTIATE(T)                                                                         \
  template CudaNorms<Accum<T>> take_norms<T>(Cuda, WorkspaceScope&, const SoftmaxProblem<T>&);     \
  template void add_item_terms<T>(Cuda, const SoftmaxProblem<T>&, const CudaNorms<Accum<T>>&,      \
                                  const ItemTerms<T>&, Rows<Accum<T>>);                            \
  template void softmax<T>(Cuda, const SoftmaxProblem<T>&, const SoftmaxOutput<T>&);               \
  template void softmax_backward<T>(Cuda, const SoftmaxProblem<T>&, View<const Accum<T>, 1>,       \
                                    View<const Accum<T>, 1>, Rows<T>, Rows<Accum<T>>);             \
  template void softmax_with_gradients<T>(Cuda, const SoftmaxProblem<T>&, View<const Accum<T>, 1>, \
                                          const SoftmaxOutput<T>&, Rows<T>, Rows<Accum<T>>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
