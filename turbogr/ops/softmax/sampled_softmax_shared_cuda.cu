// All tokens share their candidates (a sampled set, or the catalogue): products of matrices, a
// block of tokens against up to a set's room of candidates at a time. Scores are f32 in scratch
// large enough to fill the device; the gradient's tile is rounded to T for its two products.
#include <algorithm>

#include "turbogr/cuda/half.cuh"
#include "turbogr/ops/dense/gemm_cuda.h"
#include "turbogr/ops/softmax/sampled_softmax_scores_cuda.cuh"

namespace turbogr::ops::kernels {
namespace {

using cuda::Eight;
using cuda::kColumns;

// Of a tile: products of this many rows are as fast as those of more.
template <class T>
constexpr std::int64_t kTokens = std::is_same_v<T, double> ? 2048 : 16384;
template <class T>
std::int64_t tile_tokens(std::int64_t tokens) {
  return std::min(kTokens<T>, std::max<std::int64_t>(tokens, 1));
}
constexpr unsigned kThreads = 256;

// A block of candidates, what the softmax needs to know of each, and the scores of a tile.
template <class T>
struct SharedScratch : CandidateSet<Accum<T>> {
  using A = Accum<T>;
  Rows<T> rows;
  // What bf16 rows leave of f16 ones: eight bits and the other three. Else empty.
  Rows<T> rest;
  A* scores;  // [tile_tokens, kSet]

  SharedScratch(WorkspaceScope& scope, const SoftmaxProblem<T>& problem) {
    const std::int64_t room = std::min(kSet<T>, std::max<std::int64_t>(problem.num_negatives(), 1));
    const std::int64_t stride = padded(problem.width());
    rows = {scope.take<T, 2>({room, stride}).data, room, problem.width(), stride};
    if (problem.half() && std::is_same_v<T, bf16>) {
      rest = {scope.take<T, 2>({room, stride}).data, room, problem.width(), stride};
    }
    this->places = scope.take<std::int32_t>(padded(room)).data;
    this->inverse = scope.take<A>(padded(room)).data;
    this->correction = scope.take<A>(padded(room)).data;
    scores = scope.take<A, 2>({tile_tokens<T>(problem.tokens()), padded(room)}).data;
  }
};

// A warp a candidate. f16 values are taken as stored, their scale being part of `inverse`.
template <class T, class Row, bool kVector>
__global__ void fill_candidates_kernel(Rows<const Row> items, const std::int32_t* negatives,
                                       std::int64_t begin, std::int64_t count,
                                       const Accum<T>* inverse, const Accum<T>* correction,
                                       SharedScratch<T> out) {
  const std::int64_t j = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (j >= count) {
    if (threadIdx.x == 0 && j < (count + kColumns - 1) / kColumns * kColumns) out.places[j] = -1;
    return;
  }
  std::int64_t row = negatives == nullptr ? begin + j : negatives[begin + j];
  if (row < 0 || row >= items.rows) row = 0;  // the host has ruled it out
  if (threadIdx.x == 0) {
    out.places[j] = static_cast<std::int32_t>(row);
    out.inverse[j] = inverse[row];
    out.correction[j] = correction == nullptr ? Accum<T>(0) : correction[row];
  }
#pragma unroll 4
  for (std::int64_t c = std::int64_t{threadIdx.x} * kColumns; c < items.cols; c += 32 * kColumns) {
    auto x = cuda::load_row8<kVector, Accum<T>>(items.row(row) + c, items.cols - c);
    cuda::store8<kVector>(out.rows.row(j) + c, items.cols - c, x);
    if constexpr (std::is_same_v<T, bf16> && std::is_same_v<Row, f16>) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) x[i] -= convert<float>(bf16(x[i]));
      cuda::store8<kVector>(out.rest.row(j) + c, items.cols - c, x);
    }
  }
}

// A token's positive: what both passes know of it, with the same bits. A team has a token.
template <class T, bool kVector>
struct Positive {
  using A = Accum<T>;
  Eight<A> query = {}, item = {};
  A inverse = 0;  // of the query's length
  A factor = 0;   // 1 / (|q| |item| temperature)
  A logit = 0;

  __device__ Positive(Rows<const T> queries, Rows<const T> items, const std::int32_t* positive,
                      const CudaNorms<A>& norms, A scale, std::int64_t token, bool there,
                      A* shared) {
    const std::int64_t c = std::int64_t{threadIdx.x} * kColumns;
    const std::int64_t left = queries.cols - c;
    if (there) {
      const std::int32_t row = positive[token];
      inverse = norms.query[token];
      factor = rounded_product(rounded_product(inverse, scale), norms.items[row]);
      if (left > 0) {
        query = cuda::load8<kVector>(queries.row(token) + c, left);
        item = cuda::load8<kVector>(items.row(row) + c, left);
      }
    }
    A product[1] = {0};
#pragma unroll
    for (int i = 0; i < kColumns; ++i) product[0] += query[i] * item[i];
    cuda::team_sum(product, shared);
    logit = rounded_product(product[0], factor);
  }
};

template <class T, bool kVector>
__global__ void __launch_bounds__(cuda::kMaxTeam)
    positives_kernel(Rows<const T> query, Rows<const T> items, const std::int32_t* positive,
                     CudaNorms<Accum<T>> norms, Accum<T> scale, Accum<T>* logits, Accum<T>* largest,
                     Accum<T>* sum) {
  __shared__ Accum<T> shared[32];
  const std::int64_t token = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const bool there = token < query.rows;
  const Positive<T, kVector> own(query, items, positive, norms, scale, token, there, shared);
  if (!there || threadIdx.x != 0) return;
  logits[token] = own.logit;
  largest[token] = own.logit;
  sum[token] = 1;
}

template <class A>
__global__ void finish_loss_kernel(const A* positives, std::int64_t tokens, A* loss,
                                   A* log_sum_exp) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= tokens) return;
  const A largest = loss[i];
  const A log_sum = log(log_sum_exp[i]);
  log_sum_exp[i] = largest + log_sum;
  loss[i] = largest - positives[i] + log_sum;
}

// dquery of a token from v, the sum of its negatives' weights times their rows; adds the positive,
// whose weight is left for the item's side. A team has a token.
template <class T, bool kVector>
__global__ void __launch_bounds__(cuda::kMaxTeam)
    finish_queries_kernel(Rows<const T> query, Rows<const T> items, const std::int32_t* positive,
                          CudaNorms<Accum<T>> norms, Accum<T> scale, const Accum<T>* log_sum_exp,
                          const Accum<T>* dloss, Rows<const Accum<T>> v, std::int64_t first,
                          Rows<T> dquery, Accum<T>* positive_weight) {
  using A = Accum<T>;
  __shared__ A shared[32];
  const std::int64_t c = std::int64_t{threadIdx.x} * kColumns;
  const std::int64_t left = query.cols - c;
  const std::int64_t local = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const std::int64_t token = first + local;
  const bool there = local < v.rows;
  const bool active = there && left > 0;
  const Positive<T, kVector> own(query, items, positive, norms, scale, token, there, shared);
  const A inverse = own.inverse;
  Eight<A> sum = {};
  if (active) sum = cuda::load8<kVector>(v.row(local) + c, left);
  A weight = 0;
  if (there) {
    weight = dloss[token] * expm1(own.logit - log_sum_exp[token]) * own.factor;
    if (threadIdx.x == 0) positive_weight[token] = weight;
  }
  A along[1] = {0};
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    sum[i] += weight * own.item[i];
    along[0] += sum[i] * own.query[i];
  }
  cuda::team_sum(along, shared);
  if (!active) return;
  const A part = norms.projects(inverse) ? along[0] * inverse * inverse : A(0);
#pragma unroll
  for (int i = 0; i < kColumns; ++i) sum[i] -= own.query[i] * part;
  cuda::store8<kVector>(dquery.row(token) + c, left, sum);
}

// Terms of item gradients: the tokens' positives, then the candidates.
__global__ void item_terms_kernel(const std::int32_t* positive, std::int64_t tokens,
                                  std::int64_t first_set, const std::int32_t* places,
                                  std::int64_t count, std::uint32_t* keys, std::uint32_t* index) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= tokens + count) return;
  const bool token = i < tokens;
  keys[i] = static_cast<std::uint32_t>(token ? positive[i] : places[i - tokens]);
  index[i] = static_cast<std::uint32_t>(token ? i : first_set + i - tokens);
}

// One call's problem, cut into tiles.
template <class T>
struct Shared {
  using A = Accum<T>;
  Cuda cuda;
  const SoftmaxProblem<T>& problem;
  CudaNorms<A> norms;
  SharedScratch<T> set;
  cudaStream_t stream;
  A scale;
  std::int64_t count = 0;  // candidates in the set

  Shared(Cuda cuda_in, WorkspaceScope& scope, const SoftmaxProblem<T>& problem_in)
      : cuda(cuda_in),
        problem(problem_in),
        norms(take_norms(cuda, scope, problem)),
        set(scope, problem),
        stream(cuda::stream_of(cuda.stream)),
        scale(static_cast<A>(1.0 / problem.options.temperature)) {}

  std::int64_t stride() const { return padded(count); }

  void fill_set(std::int64_t begin) {
    const auto& in = problem.inputs;
    count = std::min(kSet<T>, problem.num_negatives() - begin);
    const auto fill = [&](auto items) {
      using Row = std::remove_const_t<std::remove_pointer_t<decltype(items.data)>>;
      cuda::choose_vector<T>(cuda::vectorable(items), [&](auto vector) {
        fill_candidates_kernel<T, Row, vector.value>
            <<<static_cast<unsigned>(cuda::divide_up(padded(count), 4)), dim3(32, 4), 0, stream>>>(
                items, in.shared_negatives.data, begin, count, norms.reading, in.correction.data,
                set);
      });
    };
    if (problem.half()) {
      fill(in.negative_items.values);
    } else {
      fill(in.items);
    }
    set.rows.rows = count;
    set.rest.rows = set.rest.data == nullptr ? 0 : count;
  }
  Rows<const T> queries(std::int64_t first, std::int64_t tokens) const {
    const Rows<const T> all = problem.inputs.query;
    return {all.row(first), tokens, all.cols, all.stride};
  }
  // c = a times the set's rows, as many as there are parts of them.
  void multiply(Gemm<T> product) {
    product.b = set.rows;
    gemm<T>(cuda, product);
    if (set.rest.rows == 0) return;
    product.b = set.rest;
    product.beta = 1;
    gemm<T>(cuda, product);
  }
  // scores = query item^T, as they are.
  void score(std::int64_t first, std::int64_t tokens) {
    multiply({.a = queries(first, tokens),
              .b = {},
              .b_transposed = true,
              .c = Rows<A>(set.scores, tokens, count, stride())});
  }
  ScoreTile<T> tile(std::int64_t first, std::int64_t tokens) const {
    return {.scores = set.scores,
            .stride = stride(),
            .count = count,
            .first = first,
            .tokens = tokens,
            .set = set,
            .corrects = problem.inputs.correction.data != nullptr,
            .positive = problem.inputs.positive.data,
            .query_inverse = norms.query,
            .scale = scale};
  }
  // The logits of all tokens' positives; loss and log_sum_exp become the largest logit so far and
  // the sum beside it.
  void make_positives(A* logits, const SoftmaxOutput<T>& output) {
    const auto& in = problem.inputs;
    const dim3 block = cuda::team_block(problem.width());
    const bool vectors = cuda::vectorable(in.query) && cuda::vectorable(in.items);
    cuda::choose_vector<T>(vectors, [&](auto vector) {
      positives_kernel<T, vector.value>
          <<<static_cast<unsigned>(cuda::divide_up(problem.tokens(), block.y)), block, 0, stream>>>(
              in.query, in.items, in.positive.data, norms, scale, logits, output.loss.data,
              output.log_sum_exp.data);
    });
  }
  // Calls body(first, tokens) for every tile.
  template <class Body>
  void over_tiles(Body&& body) {
    for (std::int64_t first = 0; first < problem.tokens(); first += kTokens<T>) {
      body(first, std::min(kTokens<T>, problem.tokens() - first));
    }
  }
};

// The gradients; with `output` also what they start from, of problems that one set holds.
template <class T>
void shared_gradients(Cuda cuda, const SoftmaxProblem<T>& problem, const SoftmaxOutput<T>* output,
                      View<const Accum<T>, 1> log_sum_exp, View<const Accum<T>, 1> dloss,
                      Rows<T> dquery, Rows<Accum<T>> ditems) {
  using A = Accum<T>;
  WorkspaceScope scope(cuda.workspace);
  const auto& in = problem.inputs;
  const std::int64_t tokens = problem.tokens();
  const std::int64_t width = problem.width();
  const std::int64_t negatives = problem.num_negatives();
  Shared<T> shared(cuda, scope, problem);
  const std::int64_t room = shared.set.rows.rows;
  // The sums of all tokens are kept only where one set does not hold all candidates.
  const bool several = negatives > kSet<T>;
  const std::int64_t tile_rows = tile_tokens<T>(tokens);
  T* weights = scope.take<T, 2>({tile_rows, padded(room)}).data;
  A* set_sums = scope.take<A, 2>({room, width}).data;
  A* positive_weight = scope.take<A>(tokens).data;
  std::uint32_t* keys = scope.take<std::uint32_t>(tokens + room).data;
  std::uint32_t* index = scope.take<std::uint32_t>(tokens + room).data;
  A* sums = scope.take<A, 2>({several ? tokens : tile_rows, width}).data;
  A* positives = nullptr;
  if (output != nullptr) {
    positives = scope.take<A>(tokens).data;
    shared.make_positives(positives, *output);
  }
  const auto sums_of = [&](std::int64_t first, std::int64_t count) {
    return Rows<A>(sums + (several ? first * width : 0), count, width, width);
  };
  const auto weigh = [&](std::int64_t first, std::int64_t count) {
    ScoreTile<T> tile = shared.tile(first, count);
    tile.dloss = dloss.data;
    tile.weights = weights;
    if (output != nullptr) {
      tile.positives = positives;
      tile.loss = output->loss.data;
      tile.log_sum_exp = output->log_sum_exp.data;
      use_scores<T, ScoreUse::kBoth>(shared.stream, tile);
    } else {
      tile.log_sum_exp = const_cast<A*>(log_sum_exp.data);  // the kernel only reads them
      use_scores<T, ScoreUse::kWeights>(shared.stream, tile);
    }
  };
  const bool vectors =
      cuda::vectorable(in.query) && cuda::vectorable(in.items) && cuda::vectorable(dquery);
  const auto finish = [&](std::int64_t first, std::int64_t count) {
    const dim3 block = cuda::team_block(width);
    cuda::choose_vector<T>(vectors, [&](auto vector) {
      finish_queries_kernel<T, vector.value>
          <<<static_cast<unsigned>(cuda::divide_up(count, block.y)), block, 0, shared.stream>>>(
              in.query, in.items, in.positive.data, shared.norms, shared.scale, log_sum_exp.data,
              dloss.data, sums_of(first, count), first, dquery, positive_weight);
    });
  };
  if (negatives == 0) {
    TGR_CUDA_CALL(cudaMemsetAsync(sums, 0, static_cast<std::size_t>(tile_rows * width) * sizeof(A),
                                  shared.stream));
    shared.over_tiles(finish);
  }
  for (std::int64_t begin = 0; begin < std::max<std::int64_t>(negatives, 1); begin += kSet<T>) {
    const bool last = begin + kSet<T> >= negatives;
    if (negatives > 0) {
      shared.fill_set(begin);
      shared.over_tiles([&](std::int64_t first, std::int64_t count) {
        shared.score(first, count);
        weigh(first, count);
        const Rows<const T> tile(weights, count, shared.count, shared.stride());
        shared.multiply(
            {.a = tile, .b = {}, .c = sums_of(first, count), .beta = begin > 0 ? 1.0 : 0.0});
        gemm<T>(cuda, {.a = tile,
                       .b = shared.queries(first, count),
                       .a_transposed = true,
                       .c = Rows<A>(set_sums, shared.count, width, width),
                       .beta = first > 0 ? 1.0 : 0.0});
        if (last) finish(first, count);
      });
    }
    const auto add_terms = [&](std::int64_t num_tokens, std::int64_t count, bool of_negatives) {
      ItemTerms<T> terms = {};
      terms.keys = keys;
      terms.index = index;
      terms.count = num_tokens + count;
      terms.weight = positive_weight;
      terms.query = in.query;
      terms.set_sums = set_sums;
      terms.set_places = shared.set.places;
      terms.of_negatives = of_negatives;
      if (terms.count == 0) return;
      item_terms_kernel<<<static_cast<unsigned>(cuda::divide_up(terms.count, kThreads)), kThreads,
                          0, shared.stream>>>(in.positive.data, num_tokens, tokens,
                                              shared.set.places, count, keys, index);
      add_item_terms<T>(cuda, problem, shared.norms, terms, ditems);
    };
    // The positives' weights are known after the last set.
    const std::int64_t num_tokens = last ? tokens : 0;
    if (problem.half()) {
      add_terms(0, shared.count, true);
      add_terms(num_tokens, 0, false);
    } else {
      add_terms(num_tokens, shared.count, false);
    }
  }
  cuda::check_launch("sampled_softmax_backward");
}

}  // namespace

template <class T>
void softmax_shared(Cuda cuda, const SoftmaxProblem<T>& problem, const SoftmaxOutput<T>& output) {
  using A = Accum<T>;
  WorkspaceScope scope(cuda.workspace);
  Shared<T> shared(cuda, scope, problem);
  A* positives = scope.take<A>(problem.tokens()).data;
  shared.make_positives(positives, output);
  for (std::int64_t begin = 0; begin < problem.num_negatives(); begin += kSet<T>) {
    shared.fill_set(begin);
    shared.over_tiles([&](std::int64_t first, std::int64_t tokens) {
      shared.score(first, tokens);
      ScoreTile<T> tile = shared.tile(first, tokens);
      tile.loss = output.loss.data;
      tile.log_sum_exp = output.log_sum_exp.data;
      use_scores<T, ScoreUse::kSum>(shared.stream, tile);
    });
  }
  finish_loss_kernel<A>
      <<<static_cast<unsigned>(cuda::divide_up(problem.tokens(), kThreads)), kThreads, 0,
         shared.stream>>>(positives, problem.tokens(), output.loss.data, output.log_sum_exp.data);
  cuda::check_launch("sampled_softmax");
}

template <class T>
void softmax_shared_backward(Cuda cuda, const SoftmaxProblem<T>& problem,
                             View<const Accum<T>, 1> log_sum_exp, View<const Accum<T>, 1> dloss,
                             Rows<T> dquery, Rows<Accum<T>> ditems) {
  shared_gradients<T>(cuda, problem, nullptr, log_sum_exp, dloss, dquery, ditems);
}

template <class T>
bool softmax_shared_with_gradients(Cuda cuda, const SoftmaxProblem<T>& problem,
                                   View<const Accum<T>, 1> dloss, const SoftmaxOutput<T>& output,
                                   Rows<T> dquery, Rows<Accum<T>> ditems) {
  const std::int64_t negatives = problem.num_negatives();
  if (negatives == 0 || negatives > kSet<T>) return false;
  shared_gradients<T>(cuda, problem, &output, output.log_sum_exp, dloss, dquery, ditems);
  return true;
}

std::size_t cuda_shared_workspace_bytes(std::int64_t tokens, std::int64_t width) {
  constexpr std::int64_t kRoom = kSet<float>;
  const std::int64_t stride = padded(width);
  const std::int64_t tile = tile_tokens<float>(tokens);
  return workspace_bytes_of<float>(kRoom * stride) +  // rows, or two parts of them in bf16
         workspace_bytes_of<std::int32_t>(kRoom) + 2 * workspace_bytes_of<double>(kRoom) +
         2 * workspace_bytes_of<float>(tile * kRoom) +            // scores, weights
         workspace_bytes_of<float>(kRoom * width) +               // set_sums
         2 * workspace_bytes_of<double>(tokens) +                 // positives' weights
         2 * workspace_bytes_of<std::uint32_t>(tokens + kRoom) +  // terms
         // sums: negatives may repeat, so that few items can need several sets, too
         std::max(workspace_bytes_of<float>(tokens * width),
                  workspace_bytes_of<double>(tile_tokens<double>(tokens) * width)) +
         std::max(workspace_bytes_of<unsigned char>(kGemmScratchBytes),
                  item_terms_workspace_bytes(tokens + kRoom, width));
}

#define TGR_INSTANTIATE(T)                                                                         \
  template void softmax_shared<T>(Cuda, const SoftmaxProblem<T>&, const SoftmaxOutput<T>&);        \
  template void softmax_shared_backward<T>(Cuda, const SoftmaxProblem<T>&,                         \
                                           View<const Accum<T>, 1>, View<const Accum<T>, 1>,       \
                                           Rows<T>, Rows<Accum<T>>);                               \
  template bool softmax_shared_with_gradients<T>(Cuda, const SoftmaxProblem<T>&,                   \
                                                 View<const Accum<T>, 1>, const SoftmaxOutput<T>&, \
                                                 Rows<T>, Rows<Accum<T>>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
