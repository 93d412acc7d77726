// Shared by the kernels of tokens with negatives of their own: a warp has a token, its query in
// registers, and reads the negatives' rows four at a time. Limited by the memory those rows come
// from. Tokens that share negatives stand in a ring and are named by their place in it.
//
// Negative is the format of the rows that negatives are read from: T, or f16 scaled row by row.
#pragma once

#include <algorithm>
#include <limits>

#include "turbogr/cuda/half.cuh"
#include "turbogr/ops/softmax/sampled_softmax_cuda.cuh"

namespace turbogr::ops::kernels {

inline constexpr unsigned kOwnWarps = 4;               // tokens of a block
inline constexpr int kOwnAhead = 4;                    // rows on their way
inline constexpr std::int64_t kMaxOwnPairs = 1 << 24;  // of a round of backward

template <class T, class Negative>
struct OwnArgs {
  using A = Accum<T>;
  Rows<const T> query, items;
  Rows<const Negative> negative_items;
  const std::int32_t* positive;
  const std::int32_t* negatives;  // [N, R]
  const A* correction;            // or null
  std::int64_t num_negatives;
  // Sharing: whose negatives a query is multiplied with (1: its own), and how many tokens use the
  // logits of one (1: itself).
  const std::int32_t* order;  // or null
  std::int64_t owners, users;
  CudaNorms<A> norms;
  A scale;  // 1 / temperature
  A* loss;
  A* log_sum_exp;
  // Of shared logits, for places [first, first + rows): a round makes `last` - `first` losses.
  A* logits;     // [rows, R], as they enter the softmax
  A* positives;  // [rows]
  std::int64_t rows;
  // Of backward, for places [first, last).
  const A* dloss;
  Rows<T> dquery;
  std::int64_t first, last;
  std::uint32_t* keys;
  std::uint32_t* index;
  // Where negatives are read from rows of their own: the positives' terms, apart from theirs.
  std::uint32_t* positive_keys;
  std::uint32_t* positive_index;
  A* weight;
  int shift;

  bool vectorable() const {
    return cuda::vectorable(query) && cuda::vectorable(items) && cuda::vectorable(negative_items);
  }
  // Places from -N to 2 N - 1 go round.
  __device__ std::int64_t token_at(std::int64_t place) const {
    if (place >= query.rows) place -= query.rows;
    if (place < 0) place += query.rows;
    return order == nullptr ? place : order[place];
  }
};

// A row as it lies in memory: sixteen bytes of bf16 or f16, thirty-two of f32.
template <class A, class Row, bool kVector>
struct Raw {
  cuda::Eight<A> values;
  __device__ void load(const Row* p, std::int64_t left) {
    values = cuda::load_row8<kVector, A>(p, left);
  }
  __device__ cuda::Eight<A> widened() const { return values; }
};
template <>
struct Raw<float, bf16, true> {
  uint4 values;
  __device__ void load(const bf16* p, std::int64_t) {
    values = __ldg(reinterpret_cast<const uint4*>(p));
  }
  __device__ cuda::Eight<float> widened() const {
    cuda::Eight<float> out;
    const std::uint32_t words[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[2 * i] = __uint_as_float(words[i] << 16);
      out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
    return out;
  }
};
template <>
struct Raw<float, f16, true> {
  uint4 values;
  __device__ void load(const f16* p, std::int64_t) {
    values = __ldg(reinterpret_cast<const uint4*>(p));
  }
  __device__ cuda::Eight<float> widened() const { return cuda::widened(values); }
};

// kChunks * 256 columns of a row, spread over a warp.
template <class A, class Row, int kChunks, bool kVector>
struct WarpRow {
  Raw<A, Row, kVector> raw[kChunks];

  __device__ void load(const Row* row, std::int64_t cols) {
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      const std::int64_t c = (std::int64_t{k} * 32 + threadIdx.x) * cuda::kColumns;
      if (c < cols) raw[k].load(row + c, cols - c);
    }
  }
};

template <class T, int kChunks, bool kVector>
struct WarpToken {
  using A = Accum<T>;
  cuda::Eight<A> query[kChunks];  // u / temperature
  std::int64_t cols;

  __device__ WarpToken(const T* row, std::int64_t cols_in, A scale) : cols(cols_in) {
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      query[k] = {};
      const std::int64_t c = (std::int64_t{k} * 32 + threadIdx.x) * cuda::kColumns;
      if (c < cols) query[k] = cuda::load8<kVector>(row + c, cols - c);
#pragma unroll
      for (int i = 0; i < cuda::kColumns; ++i) query[k][i] *= scale;
    }
  }
  // Every lane gets the product.
  template <class Row>
  __device__ A dot(const WarpRow<A, Row, kChunks, kVector>& row) const {
    A sum = 0;
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      const std::int64_t c = (std::int64_t{k} * 32 + threadIdx.x) * cuda::kColumns;
      if (c >= cols) continue;
      const cuda::Eight<A> x = row.raw[k].widened();
#pragma unroll
      for (int i = 0; i < cuda::kColumns; ++i) sum += query[k][i] * x[i];
    }
    return cuda::warp_sum(sum);
  }
};

// A sum of weighted rows, spread over a warp.
template <class A, int kChunks>
struct WarpSum {
  cuda::Eight<A> v[kChunks];

  __device__ WarpSum() {
#pragma unroll
    for (int k = 0; k < kChunks; ++k) v[k] = {};
  }
  template <class Row, bool kVector>
  __device__ void add(A weight, const WarpRow<A, Row, kChunks, kVector>& row, std::int64_t cols) {
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      const std::int64_t c = (std::int64_t{k} * 32 + threadIdx.x) * cuda::kColumns;
      if (c >= cols) continue;
      const cuda::Eight<A> x = row.raw[k].widened();
#pragma unroll
      for (int i = 0; i < cuda::kColumns; ++i) v[k][i] += weight * x[i];
    }
  }
  __device__ void scale(A factor) {
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
#pragma unroll
      for (int i = 0; i < cuda::kColumns; ++i) v[k][i] *= factor;
    }
  }
};

// Calls body(j, row, warp_row) for the candidates of 32 negatives from `begin`, kOwnAhead rows
// being loaded before the first is used. An index that points nowhere, which the host has ruled
// out, is taken as row 0.
template <int kChunks, bool kVector, class T, class Negative, class Body>
__device__ void over_negatives(const OwnArgs<T, Negative>& args, std::int64_t token,
                               std::int64_t begin, Body&& body) {
  const std::int64_t count = min(args.num_negatives - begin, std::int64_t{32});
  const std::int32_t* rows = args.negatives + token * args.num_negatives + begin;
  std::int32_t own = static_cast<std::int64_t>(threadIdx.x) < count ? rows[threadIdx.x] : 0;
  if (own < 0 || own >= args.negative_items.rows) own = 0;
  for (int j = 0; j < count; j += kOwnAhead) {
    WarpRow<Accum<T>, Negative, kChunks, kVector> loaded[kOwnAhead];
    std::int32_t row[kOwnAhead];
#pragma unroll
    for (int a = 0; a < kOwnAhead; ++a) {
      row[a] = __shfl_sync(0xffffffffu, own, j + a);
      if (j + a < count) {
        loaded[a].load(args.negative_items.row(row[a]), args.negative_items.cols);
      }
    }
#pragma unroll
    for (int a = 0; a < kOwnAhead; ++a) {
      if (j + a < count) body(j + a, row[a], loaded[a]);
    }
  }
}

__device__ inline float exponential(float x) { return __expf(x); }
__device__ inline double exponential(double x) { return exp(x); }

template <class T, class Negative>
OwnArgs<T, Negative> own_args(const SoftmaxProblem<T>& problem, const CudaNorms<Accum<T>>& norms) {
  const auto& in = problem.inputs;
  OwnArgs<T, Negative> args = {};
  args.query = in.query;
  args.items = in.items;
  if constexpr (std::is_same_v<Negative, f16>) {
    args.negative_items = in.negative_items.values;
  } else {
    args.negative_items = in.items;
  }
  args.positive = in.positive.data;
  args.negatives = in.negatives.data;
  args.correction = in.correction.data;
  args.num_negatives = problem.num_negatives();
  args.order = in.order.data;
  args.owners = problem.shares(NegativeSharing::kEmbeddings) ? problem.num_sharers() : 1;
  args.users = problem.shares(NegativeSharing::kLogits) ? problem.num_sharers() : 1;
  args.norms = norms;
  args.scale = static_cast<Accum<T>>(1.0 / problem.options.temperature);
  return args;
}

// Calls body with the number of chunks a row needs, as a constant; rows that cannot be read as
// vectors have fewer sizes to choose from.
template <bool kVector, class Body>
void choose_chunks(std::int64_t cols, Body&& body) {
  if (cols <= 256) return body(std::integral_constant<int, 1>{});
  if constexpr (kVector) {
    if (cols <= 512) return body(std::integral_constant<int, 2>{});
    if (cols <= 1024) return body(std::integral_constant<int, 4>{});
  }
  TGR_CHECK(cols <= 2048, "sampled_softmax: own negatives of rows of ", cols,
            " columns; on a GPU up to 2048 are possible, or share the negatives");
  body(std::integral_constant<int, 8>{});
}

// The format of the rows that a problem's negatives are read from.
template <class T, class Body>
void choose_negative(const SoftmaxProblem<T>& problem, Body&& body) {
  if (problem.half()) return body(f16{});
  body(T{});
}

inline unsigned own_blocks(std::int64_t tokens) {
  return static_cast<unsigned>(cuda::divide_up(tokens, kOwnWarps));
}

}  // namespace turbogr::ops::kernels
