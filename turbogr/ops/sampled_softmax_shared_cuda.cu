// All tokens share their candidates (a sampled set, or the catalogue): products of matrices, a
// block of tokens against up to a set's room of candidates at a time. Scores are f32 in scratch
// large enough to fill the device; the gradient's tile is rounded to T for its two products.
#include <algorithm>
#include <limits>

#include "turbogr/cuda/half.cuh"
#include "turbogr/ops/gemm_cuda.h"
#include "turbogr/ops/sampled_softmax_cuda.cuh"

namespace turbogr::ops::kernels {
namespace {

using cuda::Eight;
using cuda::kColumns;

// f64 has half the room, so that the scratch is the same.
template <class T>
constexpr std::int64_t kSet = std::is_same_v<T, double> ? 4096 : 8192;
template <class T>
constexpr std::int64_t kTokens = std::is_same_v<T, double> ? 2048 : 4096;
constexpr unsigned kThreads = 256;

// Rows of scratch start at a multiple of 16 bytes.
std::int64_t padded(std::int64_t cols) { return cuda::divide_up(cols, kColumns) * kColumns; }

// A block of candidates, what the softmax needs to know of each, and the scores of a tile.
template <class T>
struct SharedScratch {
  using A = Accum<T>;
  Rows<T> rows;
  // What bf16 rows leave of f16 ones: eight bits and the other three. Else empty.
  Rows<T> rest;
  std::int32_t* places;  // -1 past the last, up to a multiple of eight
  A* inverse;
  A* correction;
  A* scores;  // [kTokens, kSet]

  SharedScratch(WorkspaceScope& scope, const SoftmaxProblem<T>& problem) {
    const std::int64_t room = std::min(kSet<T>, std::max<std::int64_t>(problem.num_negatives(), 1));
    const std::int64_t stride = padded(problem.width());
    rows = {scope.take<T, 2>({room, stride}).data, room, problem.width(), stride};
    if (problem.half() && std::is_same_v<T, bf16>) {
      rest = {scope.take<T, 2>({room, stride}).data, room, problem.width(), stride};
    }
    places = scope.take<std::int32_t>(padded(room)).data;
    inverse = scope.take<A>(padded(room)).data;
    correction = scope.take<A>(padded(room)).data;
    scores = scope.take<A, 2>({kTokens<T>, padded(room)}).data;
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

__device__ float exponential(float x) { return __expf(x); }
__device__ double exponential(double x) { return exp(x); }

// Eight values of scratch.
__device__ Eight<float> load_scratch(const float* p) { return cuda::load_vector(p); }
__device__ Eight<double> load_scratch(const double* p) { return cuda::load8<false>(p, kColumns); }

// Eight logits of a tile's row, and the candidates' inverse norms; -infinity where there is no
// candidate or it is the positive.
template <class T>
struct Logits {
  using A = Accum<T>;
  Eight<A> value, inverse;

  __device__ Logits(const SharedScratch<T>& set, const A* row, std::int64_t column, A factor,
                    std::int32_t masked) {
    const int4 low = reinterpret_cast<const int4*>(set.places + column)[0];
    const int4 high = reinterpret_cast<const int4*>(set.places + column)[1];
    const std::int32_t places[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    const auto score = load_scratch(row + column);
    const auto correction = load_scratch(set.correction + column);
    inverse = load_scratch(set.inverse + column);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const bool there = places[i] >= 0 && places[i] != masked;
      value[i] = there ? score[i] * (factor * inverse[i]) - correction[i]
                       : -std::numeric_limits<A>::infinity();
    }
  }
};

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

// What a thread knows of a running sum of exponentials.
template <class A>
struct Running {
  A largest, sum;

  __device__ void join(A other_largest, A other_sum) {
    const A higher = max(largest, other_largest);
    if (higher == -std::numeric_limits<A>::infinity()) return;
    sum = sum * exponential(largest - higher) + other_sum * exponential(other_largest - higher);
    largest = higher;
  }
};

// A block has a token of the tile: adds its candidates to (largest, sum).
template <class T>
__global__ void add_scores_kernel(const Accum<T>* scores, std::int64_t stride, std::int64_t first,
                                  SharedScratch<T> set, const std::int32_t* positive,
                                  const Accum<T>* query_inverse, Accum<T> scale, Accum<T>* largest,
                                  Accum<T>* sum) {
  using A = Accum<T>;
  constexpr A kLowest = -std::numeric_limits<A>::infinity();
  __shared__ A maxima[kThreads / 32], sums[kThreads / 32];
  const std::int64_t token = first + blockIdx.x;
  const A* row = scores + blockIdx.x * stride;
  const std::int32_t masked = positive[token];
  const A factor = query_inverse[token] * scale;
  Running<A> own = {kLowest, 0};
#pragma unroll 2
  for (std::int64_t c = std::int64_t{threadIdx.x} * kColumns; c < stride;
       c += kThreads * kColumns) {
    const Logits<T> logits(set, row, c, factor, masked);
    A most = kLowest;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) most = max(most, logits.value[i]);
    if (most == kLowest) continue;
    if (most > own.largest) {
      own.sum *= exponential(own.largest - most);
      own.largest = most;
    }
    A part = 0;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) part += exponential(logits.value[i] - own.largest);
    own.sum += part;
  }
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    const A other_largest = __shfl_xor_sync(0xffffffffu, own.largest, lane);
    const A other_sum = __shfl_xor_sync(0xffffffffu, own.sum, lane);
    own.join(other_largest, other_sum);
  }
  if (threadIdx.x % 32 == 0) {
    maxima[threadIdx.x / 32] = own.largest;
    sums[threadIdx.x / 32] = own.sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  Running<A> all = {largest[token], sum[token]};
  for (unsigned warp = 0; warp < kThreads / 32; ++warp) all.join(maxima[warp], sums[warp]);
  largest[token] = all.largest;
  sum[token] = all.sum;
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

// g of a tile: dloss e^(logit - log_sum_exp) / (|q| |item| temperature). Columns up to the stride
// are zero.
template <class T>
__global__ void weights_kernel(const Accum<T>* scores, std::int64_t stride, std::int64_t first,
                               SharedScratch<T> set, const std::int32_t* positive,
                               const Accum<T>* query_inverse, Accum<T> scale,
                               const Accum<T>* log_sum_exp, const Accum<T>* dloss, T* weights) {
  using A = Accum<T>;
  const std::int64_t token = first + blockIdx.x;
  const A* row = scores + blockIdx.x * stride;
  const std::int32_t masked = positive[token];
  const A factor = query_inverse[token] * scale;
  const A normalizer = log_sum_exp[token];
  const A weight = dloss[token] * factor;
#pragma unroll 2
  for (std::int64_t c = std::int64_t{threadIdx.x} * kColumns; c < stride;
       c += kThreads * kColumns) {
    const Logits<T> logits(set, row, c, factor, masked);
    Eight<A> g;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      // A candidate that is not there has no inverse norm either.
      const A power = exponential(logits.value[i] - normalizer);
      g[i] = power == A(0) ? A(0) : weight * logits.inverse[i] * power;
    }
    cuda::store8<!std::is_same_v<T, double>>(weights + blockIdx.x * stride + c, kColumns, g);
  }
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
  // Calls body(first, tokens) for every tile.
  template <class Body>
  void over_tiles(Body&& body) {
    for (std::int64_t first = 0; first < problem.tokens(); first += kTokens<T>) {
      body(first, std::min(kTokens<T>, problem.tokens() - first));
    }
  }
};

}  // namespace

template <class T>
void softmax_shared(Cuda cuda, const SoftmaxProblem<T>& problem, const SoftmaxOutput<T>& output) {
  using A = Accum<T>;
  WorkspaceScope scope(cuda.workspace);
  const auto& in = problem.inputs;
  Shared<T> shared(cuda, scope, problem);
  A* positives = scope.take<A>(problem.tokens()).data;
  // Between sets, loss holds the largest logit so far and log_sum_exp the sum beside it.
  const bool vectors = cuda::vectorable(in.query) && cuda::vectorable(in.items);
  const dim3 block = cuda::team_block(problem.width());
  cuda::choose_vector<T>(vectors, [&](auto vector) {
    positives_kernel<T, vector.value>
        <<<static_cast<unsigned>(cuda::divide_up(problem.tokens(), block.y)), block, 0,
           shared.stream>>>(in.query, in.items, in.positive.data, shared.norms, shared.scale,
                            positives, output.loss.data, output.log_sum_exp.data);
  });
  for (std::int64_t begin = 0; begin < problem.num_negatives(); begin += kSet<T>) {
    shared.fill_set(begin);
    shared.over_tiles([&](std::int64_t first, std::int64_t tokens) {
      shared.score(first, tokens);
      add_scores_kernel<T><<<static_cast<unsigned>(tokens), kThreads, 0, shared.stream>>>(
          shared.set.scores, shared.stride(), first, shared.set, in.positive.data,
          shared.norms.query, shared.scale, output.loss.data, output.log_sum_exp.data);
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
  T* weights = scope.take<T, 2>({kTokens<T>, padded(room)}).data;
  A* set_sums = scope.take<A, 2>({room, width}).data;
  A* positive_weight = scope.take<A>(tokens).data;
  std::uint32_t* keys = scope.take<std::uint32_t>(tokens + room).data;
  std::uint32_t* index = scope.take<std::uint32_t>(tokens + room).data;
  A* sums = scope.take<A, 2>({several ? tokens : kTokens<T>, width}).data;
  const auto sums_of = [&](std::int64_t first, std::int64_t count) {
    return Rows<A>(sums + (several ? first * width : 0), count, width, width);
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
    TGR_CUDA_CALL(cudaMemsetAsync(sums, 0, static_cast<std::size_t>(kTokens<T> * width) * sizeof(A),
                                  shared.stream));
    shared.over_tiles(finish);
  }
  for (std::int64_t begin = 0; begin < std::max<std::int64_t>(negatives, 1); begin += kSet<T>) {
    const bool last = begin + kSet<T> >= negatives;
    if (negatives > 0) {
      shared.fill_set(begin);
      shared.over_tiles([&](std::int64_t first, std::int64_t count) {
        shared.score(first, count);
        weights_kernel<T><<<static_cast<unsigned>(count), kThreads, 0, shared.stream>>>(
            shared.set.scores, shared.stride(), first, shared.set, in.positive.data,
            shared.norms.query, shared.scale, log_sum_exp.data, dloss.data, weights);
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

std::size_t cuda_shared_workspace_bytes(std::int64_t tokens, std::int64_t items,
                                        std::int64_t width) {
  constexpr std::int64_t kRoom = kSet<float>;
  const std::int64_t stride = padded(width);
  return workspace_bytes_of<float>(kRoom * stride) +  // rows, or two parts of them in bf16
         workspace_bytes_of<std::int32_t>(kRoom) + 2 * workspace_bytes_of<double>(kRoom) +
         2 * workspace_bytes_of<float>(kTokens<float> * kRoom) +  // scores, weights
         workspace_bytes_of<float>(kRoom * width) +               // set_sums
         2 * workspace_bytes_of<double>(tokens) +                 // positives' weights
         2 * workspace_bytes_of<std::uint32_t>(tokens + kRoom) +  // terms
         workspace_bytes_of<float>((items > kRoom ? tokens : kTokens<float>)*width) +
         std::max(workspace_bytes_of<unsigned char>(kGemmScratchBytes),
                  item_terms_workspace_bytes(tokens + kRoom, width));
}

#define TGR_INSTANTIATE(T)                                                                   \
  template void softmax_shared<T>(Cuda, const SoftmaxProblem<T>&, const SoftmaxOutput<T>&);  \
  template void softmax_shared_backward<T>(Cuda, const SoftmaxProblem<T>&,                   \
                                           View<const Accum<T>, 1>, View<const Accum<T>, 1>, \
                                           Rows<T>, Rows<Accum<T>>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
