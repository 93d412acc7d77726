#include <algorithm>
#include <bit>

#include "turbogr/cuda/half.cuh"
#include "turbogr/ops/dense/convert_kernels.h"
#include "turbogr/ops/softmax/sampled_softmax_cuda.cuh"

namespace turbogr::ops::kernels {
namespace {

using cuda::Eight;
using cuda::kColumns;

template <class T, bool kVector>
struct TermRows {
  const std::uint32_t* index;  // sorted
  std::uint32_t first_set;     // rows << shift
  ItemTerms<T> terms;
  CudaNorms<Accum<T>> norms;

  struct Ref {
    std::uint32_t row;  // of the queries, or of the set's sums
    bool of_set;
    Accum<T> weight;
  };
  __device__ Ref refer(std::int64_t entry) const {
    const std::uint32_t i = index[entry];
    if (i >= first_set) {
      // Sums of a set were weighed for values as they are stored.
      const std::uint32_t j = i - first_set;
      const std::int32_t row = terms.set_places[j];
      return {j, true,
              terms.of_negatives ? norms.negatives[row] / norms.reading[row] : Accum<T>(1)};
    }
    const auto place = static_cast<std::int64_t>(i >> terms.shift);
    const std::int64_t token = terms.order == nullptr ? place : terms.order[place];
    return {static_cast<std::uint32_t>(token), false, terms.weight[i]};
  }
  __device__ Eight<Accum<T>> load(const Ref& ref, std::int64_t c) const {
    const std::int64_t left = terms.query.cols - c;
    Eight<Accum<T>> row;
    if (ref.of_set) {
      row = cuda::load8<kVector>(terms.set_sums + ref.row * terms.query.cols + c, left);
    } else {
      row = cuda::load8<kVector>(terms.query.row(ref.row) + c, left);
    }
#pragma unroll
    for (int j = 0; j < kColumns; ++j) row[j] *= ref.weight;
    return row;
  }
};

// ditem += sum - e (e . sum), e being stored values times `reading`.
template <class T, class Row, bool kVector>
struct AddProjected {
  using A = Accum<T>;
  Rows<const Row> items;
  const A* inverse;
  const A* reading;
  CudaNorms<A> norms;
  Rows<A> ditems;

  struct Early {
    Eight<A> before, item;
    A inverse, reading;
  };
  __device__ std::uint32_t place(std::uint32_t row) const { return row; }
  __device__ Early early(std::uint32_t row, std::int64_t c) const {
    if (row >= items.rows) return {};
    const std::int64_t left = items.cols - c;
    if (left <= 0) return {{}, {}, inverse[row], reading[row]};
    return {cuda::load8<kVector>(static_cast<const A*>(ditems.row(row)) + c, left),
            cuda::load_row8<kVector, A>(items.row(row) + c, left), inverse[row], reading[row]};
  }
  __device__ void operator()(std::uint32_t row, std::int64_t c, const Early& early, Eight<A>& sum,
                             A* shared) const {
    if (row >= items.rows) return;  // the whole block: the row is the run's
    if (norms.projects(early.inverse)) {
      A along[1] = {0};
#pragma unroll
      for (int i = 0; i < kColumns; ++i) along[0] += early.item[i] * sum[i];
      cuda::team_sum(along, shared);
      const A part = along[0] * early.reading * early.reading;
#pragma unroll
      for (int i = 0; i < kColumns; ++i) sum[i] -= early.item[i] * part;
    }
    const std::int64_t left = items.cols - c;
    if (left <= 0) return;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) sum[i] += early.before[i];
    cuda::store8<kVector>(ditems.row(row) + c, left, sum);
  }
};

// A warp a row of f16.
template <class A, bool kVector>
__global__ void half_norms_kernel(HalfRows rows, bool normalize, A eps, A* inverse, A* reading) {
  const std::int64_t r = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (r >= rows.rows()) return;
  const std::int64_t cols = rows.values.cols;
  A squares = 0;
  if (normalize) {
#pragma unroll 4
    for (std::int64_t c = std::int64_t{threadIdx.x} * kColumns; c < cols; c += 32 * kColumns) {
      const auto x = cuda::load_row8<kVector, A>(rows.values.row(r) + c, cols - c);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) squares += x[i] * x[i];
    }
    squares = cuda::warp_sum(squares);
  }
  if (threadIdx.x != 0) return;
  // A row of zeros may have any scale but zero, by which sums are divided.
  const A scale = rows.scale.data[r] == 0.0f ? A(1) : A(rows.scale.data[r]);
  inverse[r] = normalize ? A(1) / max(sqrt(squares) * scale, eps) : A(1);
  reading[r] = inverse[r] * scale;
}

template <class T, class Row>
void sum_terms(Cuda cuda, const ItemTerms<T>& terms, const std::uint32_t* keys,
               const std::uint32_t* index, Rows<const Row> items, const Accum<T>* inverse,
               const Accum<T>* reading, const CudaNorms<Accum<T>>& norms, Rows<Accum<T>> ditems) {
  const auto first_set = static_cast<std::uint32_t>(terms.query.rows << terms.shift);
  const bool vectors =
      cuda::vectorable(terms.query) && cuda::vectorable(items) && cuda::vectorable(ditems);
  cuda::choose_vector<T>(vectors, [&](auto vector) {
    const TermRows<T, vector.value> source = {index, first_set, terms, norms};
    const AddProjected<T, Row, vector.value> finish = {items, inverse, reading, norms, ditems};
    segment_sum<Accum<T>>(cuda::stream_of(cuda.stream), cuda.workspace, keys, terms.count,
                          items.cols, source, finish);
  });
}

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
  CudaNorms<A> norms = {query.data, items.data, items.data, items.data,
                        options.normalize ? A(1) / static_cast<A>(options.eps) : A(0)};
  if (!problem.half()) return norms;
  const HalfRows rows = problem.inputs.negative_items;
  norms.negatives = scope.take<A>(rows.rows()).data;
  norms.reading = scope.take<A>(rows.rows()).data;
  if (rows.rows() == 0) return norms;
  cuda::choose_vector<T>(cuda::vectorable(rows.values), [&](auto vector) {
    half_norms_kernel<A, vector.value><<<static_cast<unsigned>(cuda::divide_up(rows.rows(), 4)),
                                         dim3(32, 4), 0, cuda::stream_of(cuda.stream)>>>(
        rows, options.normalize, static_cast<A>(options.eps), norms.negatives, norms.reading);
  });
  cuda::check_launch("sampled_softmax");
  return norms;
}

template <class T>
void add_item_terms(Cuda cuda, const SoftmaxProblem<T>& problem, const CudaNorms<Accum<T>>& norms,
                    const ItemTerms<T>& terms, Rows<Accum<T>> ditems) {
  WorkspaceScope scope(cuda.workspace);
  std::uint32_t* keys = scope.take<std::uint32_t>(terms.count).data;
  std::uint32_t* index = scope.take<std::uint32_t>(terms.count).data;
  {
    WorkspaceScope sorting(cuda.workspace);
    const std::size_t bytes = sort_pairs_bytes<std::uint32_t>(terms.count);
    void* scratch = sorting.take<unsigned char>(static_cast<std::int64_t>(bytes)).data;
    const int bits = std::max(
        1, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(problem.num_items()))));
    sort_pairs<std::uint32_t>(cuda::stream_of(cuda.stream), terms.keys, keys, terms.index, index,
                              terms.count, bits, scratch, bytes);
  }
  if (terms.of_negatives) {
    sum_terms<T, f16>(cuda, terms, keys, index, problem.inputs.negative_items.values,
                      norms.negatives, norms.reading, norms, ditems);
  } else {
    sum_terms<T, T>(cuda, terms, keys, index, problem.inputs.items, norms.items, norms.items, norms,
                    ditems);
  }
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
  if (problem.candidates == Candidates::kOwn && !problem.shares(NegativeSharing::kLogits)) {
    softmax_own_single_pass<T>(cuda, problem, dloss, output, dquery, ditems);
    return;
  }
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
  const std::size_t norms =
      workspace_bytes_of<double>(tokens) + 3 * workspace_bytes_of<double>(items);
  if (own_negatives > 0) {
    return norms + cuda_own_workspace_bytes(tokens, width, own_negatives, options);
  }
  return norms + cuda_shared_workspace_bytes(tokens, width);
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
