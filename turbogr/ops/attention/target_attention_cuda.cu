// Targets are few where this is used, so what counts is reading the keys and values once or twice:
// a group of lanes has a row of one head, eight columns each, and a block's groups go over a
// sequence's keys side by side. Limited by bandwidth for one target a sequence; products are plain.
#include <algorithm>

#include "turbogr/cuda/bisect.cuh"
#include "turbogr/cuda/columns.cuh"
#include "turbogr/ops/attention/target_attention_kernels.h"

namespace turbogr::ops::kernels {
namespace {

using cuda::Eight;
using cuda::kColumns;

constexpr unsigned kThreads = 256;
constexpr int kForwardTargets = 4;     // of a block
constexpr int kQueryTargets = 2;       // of a block that makes gradients of queries
constexpr std::int64_t kKeyRows = 64;  // of a block that makes those of keys and values

struct TargetArgs {
  int heads;
  int lanes;                              // of a group: a power of two, eight columns each
  std::int64_t query_width, value_width;  // of a head
};

// Which sequence a block works on and which of its tiles: sequence b has those from offsets[b] /
// rows + b on, so that no two share one.
struct Tile {
  std::int64_t sequence, index;
};
__device__ Tile tile_of(Offsets offsets, std::int64_t rows, std::int64_t block) {
  const std::int64_t b = cuda::last_start(
      offsets.shape[0] - 1, block, [&](std::int64_t i) { return offsets.data[i] / rows + i; });
  return {b, block - (offsets.data[b] / rows + b)};
}

template <class A>
__device__ A group_sum(A value, int lanes) {
  for (int lane = lanes / 2; lane > 0; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
  return value;
}

template <class A>
__device__ A dot(const Eight<A>& a, const Eight<A>& b, int lanes) {
  A sum = 0;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) sum += a[i] * b[i];
  return group_sum(sum, lanes);
}

template <class A>
__device__ void add_scaled(Eight<A>& sum, A factor, const Eight<A>& row) {
#pragma unroll
  for (int i = 0; i < kColumns; ++i) sum[i] += factor * row[i];
}

// A lane's eight columns of a row of one head; zeros past its width.
template <bool kVector, class T>
__device__ Eight<Accum<T>> load_head(const Rows<const T>& rows, std::int64_t row, std::int64_t head,
                                     std::int64_t width, std::int64_t c) {
  if (c >= width) return {};
  return cuda::load8<kVector>(rows.row(row) + head * width + c, width - c);
}

// The groups' sums of eight columns, added in order and stored by the first group.
template <bool kVector, class T>
__device__ void store_sums(const Eight<Accum<T>>& own, Accum<T>* shared, int lanes, Accum<T> scale,
                           T* to, std::int64_t width) {
  using A = Accum<T>;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kColumns; ++i) shared[i * kThreads + threadIdx.x] = own[i];
  __syncthreads();
  const std::int64_t c = std::int64_t{threadIdx.x} * kColumns;
  if (static_cast<int>(threadIdx.x) >= lanes || c >= width) return;
  Eight<A> sum;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    A total = 0;
    for (unsigned thread = threadIdx.x; thread < kThreads; thread += static_cast<unsigned>(lanes)) {
      total += shared[i * kThreads + thread];
    }
    sum[i] = scale * total;
  }
  cuda::store8<kVector>(to + c, width - c, sum);
}

// What backward wants of a pair: its weight, and what q_i . k_j is multiplied by to get there.
template <class A>
struct PairGradient {
  A weight, slope;
};
template <class A>
__device__ PairGradient<A> pair_gradient(A score, A d, A alpha) {
  const A x = alpha * score;
  const A s = cuda::sigmoid(x);
  return {x * s, alpha * d * s * (1 + x * (1 - s))};
}

// A block has a few targets of one sequence and head; its groups share the keys. kBackward: dq of
// them from dout; else out.
template <class T, int kTargets, bool kBackward, bool kVector>
__global__ void __launch_bounds__(kThreads)
    target_rows_kernel(TargetArgs args, TargetSequences sequences, Rows<const T> q, Rows<const T> k,
                       Rows<const T> v, Rows<const T> dout, Accum<T> alpha, Accum<T> scale,
                       Rows<T> out) {
  using A = Accum<T>;
  __shared__ A shared[kColumns * kThreads];
  const Tile tile = tile_of(sequences.targets, kTargets, blockIdx.x);
  const TargetSequence at = target_sequence(sequences, tile.sequence);
  const std::int64_t first = tile.index * kTargets;
  if (first >= at.targets) return;
  const auto count = static_cast<int>(min(std::int64_t{kTargets}, at.targets - first));
  const std::int64_t head = blockIdx.y;
  const int groups = static_cast<int>(kThreads) / args.lanes;
  const int group = static_cast<int>(threadIdx.x) / args.lanes;
  const std::int64_t c = static_cast<std::int64_t>(threadIdx.x % args.lanes) * kColumns;
  Eight<A> query[kTargets], given[kTargets], sums[kTargets];
#pragma unroll
  for (int i = 0; i < kTargets; ++i) {
    query[i] = given[i] = sums[i] = {};
    if (i >= count) continue;
    query[i] = load_head<kVector>(q, at.target + first + i, head, args.query_width, c);
    if constexpr (kBackward) {
      given[i] = load_head<kVector>(dout, at.target + first + i, head, args.value_width, c);
    }
  }
  // Every lane of a warp comes along, so that groups can add up: with rows of zeros past the end.
  const auto add = [&](std::int64_t token, bool there, int only) {
    Eight<A> key = {}, value = {};
    if (there) {
      key = load_head<kVector>(k, token, head, args.query_width, c);
      value = load_head<kVector>(v, token, head, args.value_width, c);
    }
#pragma unroll
    for (int i = 0; i < kTargets; ++i) {
      if (i >= count) break;
      const A score = dot(query[i], key, args.lanes);
      const bool seen = there && (only < 0 || only == i);
      if constexpr (kBackward) {
        const A d = dot(given[i], value, args.lanes);
        if (seen) add_scaled(sums[i], pair_gradient(score, d, alpha).slope, key);
      } else {
        const A x = alpha * score;
        if (seen) add_scaled(sums[i], x * cuda::sigmoid(x), value);
      }
    }
  };
  for (std::int64_t base = 0; base < at.before; base += groups) {
    add(at.token + base + group, base + group < at.before, -1);
  }
  for (int base = 0; base < count; base += groups) {  // the targets' own keys
    add(at.token + at.before + first + base + group, base + group < count, base + group);
  }
  const std::int64_t width = kBackward ? args.query_width : args.value_width;
#pragma unroll
  for (int i = 0; i < kTargets; ++i) {
    if (i >= count) break;
    store_sums<kVector>(sums[i], shared, args.lanes, scale,
                        out.row(at.target + first + i) + head * width, width);
  }
}

// A block has kKeyRows keys of one sequence and head, a group some of them; each goes over the
// targets that see it.
template <class T, bool kVector>
__global__ void __launch_bounds__(kThreads)
    target_keys_kernel(TargetArgs args, TargetSequences sequences, Rows<const T> q, Rows<const T> k,
                       Rows<const T> v, Rows<const T> dout, Accum<T> alpha, Accum<T> scale,
                       Rows<T> dk, Rows<T> dv) {
  using A = Accum<T>;
  const Tile tile = tile_of(sequences.tokens, kKeyRows, blockIdx.x);
  const TargetSequence at = target_sequence(sequences, tile.sequence);
  const std::int64_t length = at.before + at.targets;
  const std::int64_t begin = tile.index * kKeyRows;
  if (begin >= length) return;
  const std::int64_t end = min(begin + kKeyRows, length);
  const std::int64_t head = blockIdx.y;
  const int groups = static_cast<int>(kThreads) / args.lanes;
  const int group = static_cast<int>(threadIdx.x) / args.lanes;
  const std::int64_t c = static_cast<std::int64_t>(threadIdx.x % args.lanes) * kColumns;
  for (std::int64_t base = begin; base < end; base += groups) {
    const std::int64_t j = base + group;
    const bool there = j < end;
    Eight<A> key = {}, value = {}, key_sum = {}, value_sum = {};
    if (there) {
      key = load_head<kVector>(k, at.token + j, head, args.query_width, c);
      value = load_head<kVector>(v, at.token + j, head, args.value_width, c);
    }
    for (std::int64_t i = 0; i < at.targets; ++i) {
      const auto query = load_head<kVector>(q, at.target + i, head, args.query_width, c);
      const auto given = load_head<kVector>(dout, at.target + i, head, args.value_width, c);
      const A score = dot(query, key, args.lanes);
      const A d = dot(given, value, args.lanes);
      if (j >= at.before && j - at.before != i) continue;
      const PairGradient<A> pair = pair_gradient(score, d, alpha);
      add_scaled(key_sum, pair.slope, query);
      add_scaled(value_sum, pair.weight, given);
    }
    if (!there) continue;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      key_sum[i] *= scale;
      value_sum[i] *= scale;
    }
    if (c < args.query_width) {
      cuda::store8<kVector>(dk.row(at.token + j) + head * args.query_width + c,
                            args.query_width - c, key_sum);
    }
    if (c < args.value_width) {
      cuda::store8<kVector>(dv.row(at.token + j) + head * args.value_width + c,
                            args.value_width - c, value_sum);
    }
  }
}

TargetArgs args_of(int heads, std::int64_t query_columns, std::int64_t value_columns) {
  TargetArgs args = {heads, 1, query_columns / heads, value_columns / heads};
  while (args.lanes * kColumns < std::max(args.query_width, args.value_width)) args.lanes *= 2;
  return args;
}

// Whether every head of every row begins at a multiple of 16 bytes.
template <class T>
bool heads_vectorable(Rows<T> rows, int heads) {
  return cuda::vectorable(rows) && rows.cols / heads % kColumns == 0;
}

unsigned tiles(std::int64_t rows, std::int64_t tile, std::int64_t batch) {
  return static_cast<unsigned>(rows / tile + batch);
}

}  // namespace

template <class T>
void target_attention(Cuda cuda, const TargetSequences& sequences, Rows<const T> q, Rows<const T> k,
                      Rows<const T> v, const TargetAttentionOptions& options, Rows<T> out) {
  using A = Accum<T>;
  const std::int64_t batch = sequences.tokens.shape[0] - 1;
  if (q.rows == 0 || batch == 0) return;
  const TargetArgs args = args_of(options.heads, q.cols, v.cols);
  const dim3 blocks(tiles(q.rows, kForwardTargets, batch), static_cast<unsigned>(options.heads));
  const bool vectors = heads_vectorable(q, options.heads) && heads_vectorable(k, options.heads) &&
                       heads_vectorable(v, options.heads) && heads_vectorable(out, options.heads);
  cuda::choose_vector<T>(vectors, [&](auto vector) {
    target_rows_kernel<T, kForwardTargets, false, vector.value>
        <<<blocks, kThreads, 0, cuda::stream_of(cuda.stream)>>>(
            args, sequences, q, k, v, {}, static_cast<A>(options.alpha),
            static_cast<A>(1 / options.norm_length), out);
  });
  cuda::check_launch("target_attention");
}

template <class T>
void target_attention_backward(Cuda cuda, const TargetSequences& sequences, Rows<const T> q,
                               Rows<const T> k, Rows<const T> v,
                               const TargetAttentionOptions& options, Rows<const T> dout,
                               Rows<T> dq, Rows<T> dk, Rows<T> dv) {
  using A = Accum<T>;
  const std::int64_t batch = sequences.tokens.shape[0] - 1;
  if (k.rows == 0 || batch == 0) return;
  cudaStream_t stream = cuda::stream_of(cuda.stream);
  const TargetArgs args = args_of(options.heads, q.cols, v.cols);
  const auto heads = static_cast<unsigned>(options.heads);
  const auto alpha = static_cast<A>(options.alpha);
  const auto scale = static_cast<A>(1 / options.norm_length);
  const bool vectors = heads_vectorable(q, options.heads) && heads_vectorable(k, options.heads) &&
                       heads_vectorable(v, options.heads) &&
                       heads_vectorable(dout, options.heads) &&
                       heads_vectorable(dq, options.heads) && heads_vectorable(dk, options.heads) &&
                       heads_vectorable(dv, options.heads);
  cuda::choose_vector<T>(vectors, [&](auto vector) {
    if (q.rows > 0) {
      const dim3 blocks(tiles(q.rows, kQueryTargets, batch), heads);
      target_rows_kernel<T, kQueryTargets, true, vector.value>
          <<<blocks, kThreads, 0, stream>>>(args, sequences, q, k, v, dout, alpha, scale, dq);
    }
    const dim3 blocks(tiles(k.rows, kKeyRows, batch), heads);
    target_keys_kernel<T, vector.value>
        <<<blocks, kThreads, 0, stream>>>(args, sequences, q, k, v, dout, alpha, scale, dk, dv);
  });
  cuda::check_launch("target_attention_backward");
}

#define TGR_INSTANTIATE(T)                                                                      \
  template void target_attention<T>(Cuda, const TargetSequences&, Rows<const T>, Rows<const T>, \
                                    Rows<const T>, const TargetAttentionOptions&, Rows<T>);     \
  template void target_attention_backward<T>(                                                   \
      Cuda, const TargetSequences&, Rows<const T>, Rows<const T>, Rows<const T>,                \
      const TargetAttentionOptions&, Rows<const T>, Rows<T>, Rows<T>, Rows<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
