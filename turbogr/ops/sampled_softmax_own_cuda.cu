// Each token has negatives of its own: a warp has a token, its query in registers, and reads the
// negatives' rows four at a time. Limited by the memory those rows come from.
#include <algorithm>
#include <bit>
#include <limits>

#include "turbogr/ops/sampled_softmax_cuda.cuh"

namespace turbogr::ops::kernels {
namespace {

using cuda::Eight;
using cuda::kColumns;

constexpr unsigned kWarps = 4;               // tokens of a block
constexpr int kAhead = 4;                    // rows on their way
constexpr std::int64_t kMaxPairs = 1 << 24;  // of a round of backward

std::int64_t round_tokens(std::int64_t tokens, std::int64_t num_negatives) {
  return std::clamp(kMaxPairs / (num_negatives + 1), std::int64_t{1},
                    std::max(tokens, std::int64_t{1}));
}

template <class T>
struct OwnArgs {
  using A = Accum<T>;
  Rows<const T> query, items;
  const std::int32_t* positive;
  const std::int32_t* negatives;  // [N, R]
  const A* correction;            // or null
  std::int64_t num_negatives;
  CudaNorms<A> norms;
  A scale;  // 1 / temperature
  A* loss;
  A* log_sum_exp;
  // Of backward, for tokens [first, last).
  const A* dloss;
  Rows<T> dquery;
  std::int64_t first, last;
  std::uint32_t* keys;
  std::uint32_t* index;
  A* weight;
  int shift;
};

// A row as it lies in memory: sixteen bytes of bf16, thirty-two of f32.
template <class T, bool kVector>
struct Raw {
  Eight<Accum<T>> values;
  __device__ void load(const T* p, std::int64_t left) { values = cuda::load8<false>(p, left); }
  __device__ Eight<Accum<T>> widened() const { return values; }
};
template <>
struct Raw<float, true> {
  Eight<float> values;
  __device__ void load(const float* p, std::int64_t) { values = cuda::load_vector(p); }
  __device__ Eight<float> widened() const { return values; }
};
template <>
struct Raw<bf16, true> {
  uint4 values;
  __device__ void load(const bf16* p, std::int64_t) {
    values = __ldg(reinterpret_cast<const uint4*>(p));
  }
  __device__ Eight<float> widened() const {
    Eight<float> out;
    const std::uint32_t words[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[2 * i] = __uint_as_float(words[i] << 16);
      out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
    return out;
  }
};

// kChunks * 256 columns of a row, spread over a warp.
template <class T, int kChunks, bool kVector>
struct WarpRow {
  Raw<T, kVector> raw[kChunks];

  __device__ void load(const T* row, std::int64_t cols) {
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      const std::int64_t c = (std::int64_t{k} * 32 + threadIdx.x) * kColumns;
      if (c < cols) raw[k].load(row + c, cols - c);
    }
  }
};

template <class T, int kChunks, bool kVector>
struct WarpToken {
  using A = Accum<T>;
  Eight<A> query[kChunks];  // u / temperature
  std::int64_t cols;

  __device__ WarpToken(const T* row, std::int64_t cols_in, A scale) : cols(cols_in) {
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      query[k] = {};
      const std::int64_t c = (std::int64_t{k} * 32 + threadIdx.x) * kColumns;
      if (c < cols) query[k] = cuda::load8<kVector>(row + c, cols - c);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) query[k][i] *= scale;
    }
  }
  // Every lane gets the product.
  __device__ A dot(const WarpRow<T, kChunks, kVector>& row) const {
    A sum = 0;
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      const std::int64_t c = (std::int64_t{k} * 32 + threadIdx.x) * kColumns;
      if (c >= cols) continue;
      const Eight<A> x = row.raw[k].widened();
#pragma unroll
      for (int i = 0; i < kColumns; ++i) sum += query[k][i] * x[i];
    }
    return cuda::warp_sum(sum);
  }
};

// Calls body(j, row, warp_row) for the candidates of 32 negatives from `begin`, kAhead rows being
// loaded before the first is used. An index that points nowhere, which the host has ruled out, is
// taken as row 0.
template <class T, int kChunks, bool kVector, class Body>
__device__ void over_negatives(const OwnArgs<T>& args, std::int64_t token, std::int64_t begin,
                               Body&& body) {
  const std::int64_t count = min(args.num_negatives - begin, std::int64_t{32});
  const std::int32_t* rows = args.negatives + token * args.num_negatives + begin;
  std::int32_t own = static_cast<std::int64_t>(threadIdx.x) < count ? rows[threadIdx.x] : 0;
  if (own < 0 || own >= args.items.rows) own = 0;
  for (int j = 0; j < count; j += kAhead) {
    WarpRow<T, kChunks, kVector> loaded[kAhead];
    std::int32_t row[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      row[a] = __shfl_sync(0xffffffffu, own, j + a);
      if (j + a < count) loaded[a].load(args.items.row(row[a]), args.items.cols);
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (j + a < count) body(j + a, row[a], loaded[a]);
    }
  }
}

__device__ float exponential(float x) { return __expf(x); }
__device__ double exponential(double x) { return exp(x); }

template <class T, int kChunks, bool kVector>
__global__ void own_kernel(OwnArgs<T> args) {
  using A = Accum<T>;
  const std::int64_t token = std::int64_t{blockIdx.x} * kWarps + threadIdx.y;
  if (token >= args.query.rows) return;
  const WarpToken<T, kChunks, kVector> query(args.query.row(token), args.query.cols,
                                             args.norms.query[token] * args.scale);
  WarpRow<T, kChunks, kVector> row;
  const std::int32_t positive = args.positive[token];
  row.load(args.items.row(positive), args.items.cols);
  const A first = query.dot(row) * args.norms.items[positive];
  // Each lane has a share of the negatives, and lane 0 the positive.
  constexpr A kLowest = -std::numeric_limits<A>::infinity();
  A largest = first;
  A sum = threadIdx.x == 0 ? A(1) : A(0);
  for (std::int64_t begin = 0; begin < args.num_negatives; begin += 32) {
    A mine = kLowest;
    over_negatives<T, kChunks, kVector>(
        args, token, begin, [&](int j, std::int32_t item, const auto& loaded) {
          A logit = query.dot(loaded) * args.norms.items[item];
          if (args.correction != nullptr) logit -= args.correction[item];
          if (static_cast<int>(threadIdx.x) == j && item != positive) mine = logit;
        });
    const A higher = max(largest, mine);
    sum = sum * exponential(largest - higher) + exponential(mine - higher);
    largest = higher;
  }
  A most = largest;
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2)
    most = max(most, __shfl_xor_sync(0xffffffffu, most, lane));
  sum = cuda::warp_sum(sum * exponential(largest - most));
  if (threadIdx.x != 0) return;
  const A log_sum = log(sum);
  args.log_sum_exp[token] = most + log_sum;
  args.loss[token] = most - first + log_sum;
}

template <class T, int kChunks, bool kVector>
__global__ void own_backward_kernel(OwnArgs<T> args) {
  using A = Accum<T>;
  const std::int64_t token = args.first + std::int64_t{blockIdx.x} * kWarps + threadIdx.y;
  if (token >= args.last) return;
  const std::int64_t local = token - args.first;
  const A inverse = args.norms.query[token];
  const WarpToken<T, kChunks, kVector> query(args.query.row(token), args.query.cols,
                                             inverse * args.scale);
  const A log_sum_exp = args.log_sum_exp[token];
  const A dloss = args.dloss[token];
  Eight<A> v[kChunks];
#pragma unroll
  for (int k = 0; k < kChunks; ++k) v[k] = {};
  const auto add = [&](A weight, const WarpRow<T, kChunks, kVector>& row) {
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      const std::int64_t c = (std::int64_t{k} * 32 + threadIdx.x) * kColumns;
      if (c >= args.query.cols) continue;
      const Eight<A> x = row.raw[k].widened();
#pragma unroll
      for (int i = 0; i < kColumns; ++i) v[k][i] += weight * x[i];
    }
  };
  // The pair's weight as both sides take it, and where it is kept.
  const A factor = inverse * args.scale;
  const std::int64_t pairs = local * (args.num_negatives + 1);
  const auto keep = [&](std::int64_t r, std::int32_t item, A weight) {
    const auto slot = static_cast<std::uint32_t>((local << args.shift) + r);
    args.keys[pairs + r] = static_cast<std::uint32_t>(item);
    args.index[pairs + r] = slot;
    args.weight[slot] = weight;
  };
  const std::int32_t positive = args.positive[token];
  {
    WarpRow<T, kChunks, kVector> row;
    row.load(args.items.row(positive), args.items.cols);
    const A item_inverse = args.norms.items[positive];
    const A logit = query.dot(row) * item_inverse;
    const A weight = dloss * expm1(logit - log_sum_exp) * item_inverse * factor;
    add(weight, row);
    if (threadIdx.x == 0) keep(args.num_negatives, positive, weight);
  }
  for (std::int64_t begin = 0; begin < args.num_negatives; begin += 32) {
    A mine = 0;
    std::int32_t mine_item = 0;
    over_negatives<T, kChunks, kVector>(
        args, token, begin, [&](int j, std::int32_t item, const auto& loaded) {
          const A item_inverse = args.norms.items[item];
          A logit = query.dot(loaded) * item_inverse;
          if (args.correction != nullptr) logit -= args.correction[item];
          const A weight = item == positive
                               ? A(0)
                               : dloss * exponential(logit - log_sum_exp) * item_inverse * factor;
          add(weight, loaded);
          if (static_cast<int>(threadIdx.x) == j) {
            mine = weight;
            mine_item = item;
          }
        });
    if (begin + threadIdx.x < args.num_negatives) keep(begin + threadIdx.x, mine_item, mine);
  }
  // v - u (u . v); query is u / temperature.
  A along = 0;
  if (args.norms.projects(inverse)) {
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) along += query.query[k][i] * v[k][i];
    }
    along = cuda::warp_sum(along) / (args.scale * args.scale);
  }
#pragma unroll
  for (int k = 0; k < kChunks; ++k) {
    const std::int64_t c = (std::int64_t{k} * 32 + threadIdx.x) * kColumns;
    if (c >= args.query.cols) continue;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) v[k][i] -= along * query.query[k][i];
    cuda::store8<kVector>(args.dquery.row(token) + c, args.query.cols - c, v[k]);
  }
}

template <class T>
OwnArgs<T> own_args(const SoftmaxProblem<T>& problem, const CudaNorms<Accum<T>>& norms) {
  const auto& in = problem.inputs;
  return {.query = in.query,
          .items = in.items,
          .positive = in.positive.data,
          .negatives = in.negatives.data,
          .correction = in.correction.data,
          .num_negatives = problem.num_negatives(),
          .norms = norms,
          .scale = static_cast<Accum<T>>(1.0 / problem.options.temperature)};
}

// Calls body with the number of chunks a row needs, as a constant.
template <class Body>
void choose_chunks(std::int64_t cols, Body&& body) {
  if (cols <= 256) return body(std::integral_constant<int, 1>{});
  if (cols <= 512) return body(std::integral_constant<int, 2>{});
  if (cols <= 1024) return body(std::integral_constant<int, 4>{});
  TGR_CHECK(cols <= 2048, "sampled_softmax: own negatives of rows of ", cols,
            " columns; on a GPU up to 2048 are possible, or share the negatives");
  body(std::integral_constant<int, 8>{});
}

}  // namespace

template <class T>
void softmax_own(Cuda cuda, const SoftmaxProblem<T>& problem, const SoftmaxOutput<T>& output) {
  WorkspaceScope scope(cuda.workspace);
  OwnArgs<T> args = own_args(problem, take_norms(cuda, scope, problem));
  args.loss = output.loss.data;
  args.log_sum_exp = output.log_sum_exp.data;
  const auto blocks = static_cast<unsigned>(cuda::divide_up(problem.tokens(), kWarps));
  const bool vectors = cuda::vectorable(args.query) && cuda::vectorable(args.items);
  cuda::choose_vector<T>(vectors, [&](auto vector) {
    choose_chunks(problem.width(), [&](auto chunks) {
      own_kernel<T, chunks.value, vector.value>
          <<<blocks, dim3(32, kWarps), 0, cuda::stream_of(cuda.stream)>>>(args);
    });
  });
  cuda::check_launch("sampled_softmax");
}

template <class T>
void softmax_own_backward(Cuda cuda, const SoftmaxProblem<T>& problem,
                          View<const Accum<T>, 1> log_sum_exp, View<const Accum<T>, 1> dloss,
                          Rows<T> dquery, Rows<Accum<T>> ditems) {
  using A = Accum<T>;
  WorkspaceScope scope(cuda.workspace);
  const CudaNorms<A> norms = take_norms(cuda, scope, problem);
  OwnArgs<T> args = own_args(problem, norms);
  const std::int64_t a_token = args.num_negatives + 1;
  const std::int64_t room = round_tokens(problem.tokens(), args.num_negatives);
  args.log_sum_exp = const_cast<A*>(log_sum_exp.data);  // the kernel only reads it
  args.dloss = dloss.data;
  args.dquery = dquery;
  args.keys = scope.take<std::uint32_t>(room * a_token).data;
  args.index = scope.take<std::uint32_t>(room * a_token).data;
  args.shift = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(args.num_negatives)));
  args.weight = scope.take<A>(room << args.shift).data;
  const bool vectors =
      cuda::vectorable(args.query) && cuda::vectorable(args.items) && cuda::vectorable(dquery);
  for (std::int64_t first = 0; first < problem.tokens(); first += room) {
    args.first = first;
    args.last = std::min(first + room, problem.tokens());
    const std::int64_t count = args.last - first;
    const auto blocks = static_cast<unsigned>(cuda::divide_up(count, kWarps));
    cuda::choose_vector<T>(vectors, [&](auto vector) {
      choose_chunks(problem.width(), [&](auto chunks) {
        own_backward_kernel<T, chunks.value, vector.value>
            <<<blocks, dim3(32, kWarps), 0, cuda::stream_of(cuda.stream)>>>(args);
      });
    });
    const Rows<const T> query(args.query.row(first), count, args.query.cols, args.query.stride);
    add_item_terms<T>(
        cuda, problem, norms,
        {args.keys, args.index, count * a_token, args.weight, args.shift, query, nullptr}, ditems);
  }
  cuda::check_launch("sampled_softmax_backward");
}

std::size_t cuda_own_workspace_bytes(std::int64_t tokens, std::int64_t width,
                                     std::int64_t num_negatives) {
  const std::int64_t room = round_tokens(tokens, num_negatives);
  const std::int64_t pairs = room * (num_negatives + 1);
  const auto shift = std::bit_width(static_cast<std::uint64_t>(num_negatives));
  return 2 * workspace_bytes_of<std::uint32_t>(pairs) + workspace_bytes_of<double>(room << shift) +
         item_terms_workspace_bytes(pairs, width);
}

#define TGR_INSTANTIATE(T)                                                                       \
  template void softmax_own<T>(Cuda, const SoftmaxProblem<T>&, const SoftmaxOutput<T>&);         \
  template void softmax_own_backward<T>(Cuda, const SoftmaxProblem<T>&, View<const Accum<T>, 1>, \
                                        View<const Accum<T>, 1>, Rows<T>, Rows<Accum<T>>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
