// The portable attention kernels. Legend: a slot is a place for one tile of one sequence; sequence
// b has those from offsets[b] / rows + b on, so that a block finds its tile without a plan.
#pragma once

#include "turbogr/core/cuda_call.h"
#include "turbogr/ops/attention/portable/attention_portable.h"
#include "turbogr/ops/attention/portable/attention_portable_tile.cuh"

namespace turbogr::ops {

template <class T>
struct PortableArgs {
  using A = Accum<T>;
  AttentionProblem<T> p;
  Rows<T> out;
  Rows<const T> dout;
  AttentionGradients<T> d;
  std::int64_t batch;
  std::int64_t slots;
  int dq, dv;
  int out_columns;    // of one head's out
  int latent_column;  // where the latent map's part of them begins
  bool bias;          // whether tables enter the score
  A alpha, inverse_norm;
  A* position_sums;  // [halves, slots, 2 * rows]
  A* time_sums;      // [halves, slots, buckets]
};

__device__ inline std::int64_t first_slot(Offsets offsets, std::int64_t sequence, int rows) {
  return offsets.data[sequence] / rows + sequence;
}

// One sequence as a block sees it.
struct PortableSequence {
  std::int64_t first = 0;  // row
  SequenceMask mask;
  bool plain = false;  // every token sees itself and what came before
  int block = 0;       // the slot's number in its sequence

  __device__ bool visible(std::int64_t query, std::int64_t key) const {
    if (query >= mask.length || key >= mask.length) return false;
    return plain ? key <= query : mask.sees(query, key);
  }
};

template <class T>
__device__ PortableSequence sequence_of(const PortableArgs<T>& args, std::int64_t slot) {
  constexpr int kRows = Cut<Accum<T>>::kRows;
  std::int64_t low = 0;
  std::int64_t high = args.batch - 1;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (first_slot(args.p.q.offsets, middle, kRows) <= slot) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  PortableSequence sequence;
  sequence.first = args.p.q.offsets.data[low];
  sequence.mask = sequence_mask(args.p.mask, args.p.q.offsets, low);
  sequence.plain = sequence.mask.prefix == 0 && sequence.mask.window == 0 &&
                   sequence.mask.history_end == sequence.mask.length;
  sequence.block = static_cast<int>(slot - first_slot(args.p.q.offsets, low, kRows));
  return sequence;
}

// The tile at `begin` of a sequence, of a matrix whose row has one head's columns at `column`.
template <class A, class T, class U>
__device__ TileRows<U> tile_rows(const PortableSequence& sequence, Rows<U> matrix,
                                 std::int64_t begin, std::int64_t column) {
  const std::int64_t left = sequence.mask.length - begin;
  return {matrix.row(sequence.first + begin) + column, matrix.stride,
          static_cast<int>(left < Cut<A>::kRows ? left : Cut<A>::kRows)};
}

template <class T>
__device__ void load_times(PortableShared<Accum<T>>& s, const PortableArgs<T>& args,
                           const PortableSequence& sequence, std::int64_t query, std::int64_t key) {
  if (args.p.bias.time.empty()) return;
  const int i = threadIdx.x;
  if (i < Cut<Accum<T>>::kRows) {
    const std::int64_t last = sequence.mask.length - 1;
    const std::int64_t q = query + i < last ? query + i : last;
    const std::int64_t k = key + i < last ? key + i : last;
    s.query_times[i] = args.p.bias.query_times.data[sequence.first + q];
    s.key_times[i] = args.p.bias.key_times.data[sequence.first + k];
  }
}

// Weights of a visible pair from the tables.
template <class T>
__device__ Accum<T> position_weight(const PortableArgs<T>& args, std::int64_t query,
                                    std::int64_t key) {
  const View<const Accum<T>, 1>& table = args.p.bias.position;
  return table.data[table.shape[0] / 2 + key - query];
}
template <class A>
__device__ A time_weight(const PortableShared<A>& s, int query, int key) {
  return s.time_weights[bucket_of_gap(s.buckets,
                                      device_time_gap(s.query_times[query], s.key_times[key]))];
}

template <class A>
struct Silu {
  A value, slope;
};
template <class A>
__device__ Silu<A> silu_of(A x) {
  const A s = A(1) / (A(1) + exp(-x));
  return {x * s, s * (A(1) + x * (A(1) - s))};
}

// Calls body(i, j, query, key) for the pairs of a thread's fragment, positions in the tile; own
// rows are queries, or keys where `kKeysDown`.
template <class A, bool kKeysDown, class Body>
__device__ void for_pairs(Body&& body) {
#pragma unroll
  for (int i = 0; i < Cut<A>::kPer; ++i) {
#pragma unroll
    for (int j = 0; j < Cut<A>::kPer; ++j) {
      const int own = down<A>() + i;
      const int other = across<A>() + j;
      body(i, j, kKeysDown ? other : own, kKeysDown ? own : other);
    }
  }
}

// From products to weights of the latent map (value) and their derivative (slope), zero for pairs
// that are not visible.
template <class T, bool kKeysDown>
__device__ void apply_silu(const PortableShared<Accum<T>>& s, const PortableArgs<T>& args,
                           const PortableSequence& sequence, std::int64_t query0, std::int64_t key0,
                           const Fragment<Accum<T>>& products, Fragment<Accum<T>>& value,
                           Fragment<Accum<T>>& slope) {
  using A = Accum<T>;
  for_pairs<A, kKeysDown>([&](int i, int j, int query, int key) {
    if (!sequence.visible(query0 + query, key0 + key)) {
      value.at[i][j] = slope.at[i][j] = A(0);
      return;
    }
    A bias = A(0);
    if (args.bias && !args.p.bias.position.empty()) {
      bias += position_weight(args, query0 + query, key0 + key);
    }
    if (args.bias && !args.p.bias.time.empty()) bias += time_weight(s, query, key);
    const Silu<A> silu = silu_of(args.alpha * products.at[i][j] + bias);
    value.at[i][j] = silu.value * args.inverse_norm;
    slope.at[i][j] = silu.slope * args.inverse_norm;
  });
}

// The weights of one of FuXi's tables: map 0 is the position's, 1 the time's.
template <class T, bool kKeysDown>
__device__ Fragment<Accum<T>> map_weights(const PortableShared<Accum<T>>& s,
                                          const PortableArgs<T>& args,
                                          const PortableSequence& sequence, std::int64_t query0,
                                          std::int64_t key0, int map) {
  using A = Accum<T>;
  Fragment<A> weights;
  for_pairs<A, kKeysDown>([&](int i, int j, int query, int key) {
    if (!sequence.visible(query0 + query, key0 + key)) return;
    weights.at[i][j] =
        map == 0 ? position_weight(args, query0 + query, key0 + key) : time_weight(s, query, key);
  });
  return weights;
}
template <class T>
__device__ bool has_map(const PortableArgs<T>& args, int map) {
  return map == 0 ? !args.p.bias.position.empty() : !args.p.bias.time.empty();
}

// Columns from `column` on of a head that is `width` wide and begins at column `head` of `to`.
template <class A, class T>
__device__ void store_rows(const PortableSequence& sequence, std::int64_t begin, Rows<T> to,
                           std::int64_t head, int column, int width, A scale,
                           const Fragment<A>& sum) {
#pragma unroll
  for (int i = 0; i < Cut<A>::kPer; ++i) {
    const std::int64_t row = begin + down<A>() + i;
    if (row >= sequence.mask.length) continue;
#pragma unroll
    for (int j = 0; j < Cut<A>::kPer; ++j) {
      const int at = column + across<A>() + j;
      if (at < width) to(sequence.first + row, head + at) = convert<T>(scale * sum.at[i][j]);
    }
  }
}

// One block a query tile, head and slice of the value's columns; limited by arithmetic.
template <class T, bool kFuxi>
__global__ void __launch_bounds__(kPortableThreads, 2)
    portable_forward(const __grid_constant__ PortableArgs<T> args) {
  using A = Accum<T>;
  constexpr int kRows = Cut<A>::kRows;
  __shared__ PortableShared<A> s;
  // Later tiles have more keys: they go first.
  const PortableSequence sequence = sequence_of(args, gridDim.x - 1 - blockIdx.x);
  const std::int64_t query0 = static_cast<std::int64_t>(sequence.block) * kRows;
  if (query0 >= sequence.mask.length) return;
  const int head = blockIdx.y;
  const int column = static_cast<int>(blockIdx.z) * kRows;
  fill_tables(s, args.p.bias.time);
  Fragment<A> out[kFuxi ? 3 : 1];
  for (std::int64_t key0 = 0; key0 < sequence.mask.length; key0 += kRows) {
    if (!sequence.mask.may_see(query0, kRows, key0, kRows)) continue;
    __syncthreads();
    load_times(s, args, sequence, query0, key0);
    const auto v = tile_rows<A, T>(sequence, args.p.v, key0, head * args.dv);
    const Fragment<A> products =
        multiply_rows(s, tile_rows<A, T>(sequence, args.p.q.values, query0, head * args.dq),
                      tile_rows<A, T>(sequence, args.p.k, key0, head * args.dq), args.dq);
    Fragment<A> weights, slope;
    if constexpr (kFuxi) {
#pragma unroll
      for (int map = 0; map < 2; ++map) {
        if (!has_map(args, map)) continue;
        store_weights(s, map_weights<T, false>(s, args, sequence, query0, key0, map));
        multiply_weights(s, v, column, args.dv, out[map]);
      }
    }
    apply_silu<T, false>(s, args, sequence, query0, key0, products, weights, slope);
    store_weights(s, weights);
    multiply_weights(s, v, column, args.dv, out[kFuxi ? 2 : 0]);
  }
#pragma unroll
  for (int map = 0; map < (kFuxi ? 3 : 1); ++map) {
    store_rows(sequence, query0, args.out, head * args.out_columns + map * args.dv, column, args.dv,
               A(1), out[map]);
  }
}

// One block a query tile, head and slice of the query's columns.
template <class T>
__global__ void __launch_bounds__(kPortableThreads, 2)
    portable_query_gradient(const __grid_constant__ PortableArgs<T> args) {
  using A = Accum<T>;
  constexpr int kRows = Cut<A>::kRows;
  __shared__ PortableShared<A> s;
  const PortableSequence sequence = sequence_of(args, gridDim.x - 1 - blockIdx.x);
  const std::int64_t query0 = static_cast<std::int64_t>(sequence.block) * kRows;
  if (query0 >= sequence.mask.length) return;
  const int head = blockIdx.y;
  const int column = static_cast<int>(blockIdx.z) * kRows;
  fill_tables(s, args.p.bias.time);
  const auto q = tile_rows<A, T>(sequence, args.p.q.values, query0, head * args.dq);
  const auto dout =
      tile_rows<A, T>(sequence, args.dout, query0, head * args.out_columns + args.latent_column);
  Fragment<A> dq;
  for (std::int64_t key0 = 0; key0 < sequence.mask.length; key0 += kRows) {
    if (!sequence.mask.may_see(query0, kRows, key0, kRows)) continue;
    __syncthreads();
    load_times(s, args, sequence, query0, key0);
    const auto k = tile_rows<A, T>(sequence, args.p.k, key0, head * args.dq);
    const auto v = tile_rows<A, T>(sequence, args.p.v, key0, head * args.dv);
    const Fragment<A> products = multiply_rows(s, q, k, args.dq);
    Fragment<A> value, slope;
    apply_silu<T, false>(s, args, sequence, query0, key0, products, value, slope);
    const Fragment<A> dweights = multiply_rows(s, dout, v, args.dv);
    for_pairs<A, false>([&](int i, int j, int, int) { slope.at[i][j] *= dweights.at[i][j]; });
    store_weights(s, slope);
    multiply_weights(s, k, column, args.dq, dq);
  }
  store_rows(sequence, query0, args.d.dq, head * args.dq, column, args.dq, args.alpha, dq);
}

// One block a key tile, head and slice of the key's and the value's columns.
template <class T, bool kFuxi>
__global__ void __launch_bounds__(kPortableThreads, 2)
    portable_key_gradient(const __grid_constant__ PortableArgs<T> args) {
  using A = Accum<T>;
  constexpr int kRows = Cut<A>::kRows;
  __shared__ PortableShared<A> s;
  const PortableSequence sequence = sequence_of(args, blockIdx.x);
  const std::int64_t key0 = static_cast<std::int64_t>(sequence.block) * kRows;
  if (key0 >= sequence.mask.length) return;
  const int head = blockIdx.y;
  const int column = static_cast<int>(blockIdx.z) * kRows;
  fill_tables(s, args.p.bias.time);
  const auto k = tile_rows<A, T>(sequence, args.p.k, key0, head * args.dq);
  const auto v = tile_rows<A, T>(sequence, args.p.v, key0, head * args.dv);
  Fragment<A> dk, dv;
  for (std::int64_t query0 = 0; query0 < sequence.mask.length; query0 += kRows) {
    if (!sequence.mask.may_see(query0, kRows, key0, kRows)) continue;
    __syncthreads();
    load_times(s, args, sequence, query0, key0);
    const auto q = tile_rows<A, T>(sequence, args.p.q.values, query0, head * args.dq);
    const std::int64_t dout_column = head * args.out_columns;
    const auto dout =
        tile_rows<A, T>(sequence, args.dout, query0, dout_column + args.latent_column);
    const Fragment<A> products = multiply_rows(s, k, q, args.dq);
    Fragment<A> value, slope;
    apply_silu<T, true>(s, args, sequence, query0, key0, products, value, slope);
    if (column < args.dv) {
      if constexpr (kFuxi) {
        for (int map = 0; map < 2; ++map) {
          if (!has_map(args, map)) continue;
          store_weights(s, map_weights<T, true>(s, args, sequence, query0, key0, map));
          multiply_weights(
              s, tile_rows<A, T>(sequence, args.dout, query0, dout_column + map * args.dv), column,
              args.dv, dv);
        }
      }
      store_weights(s, value);
      multiply_weights(s, dout, column, args.dv, dv);
    }
    if (column < args.dq) {
      const Fragment<A> dweights = multiply_rows(s, v, dout, args.dv);
      for_pairs<A, true>([&](int i, int j, int, int) { slope.at[i][j] *= dweights.at[i][j]; });
      store_weights(s, slope);
      multiply_weights(s, q, column, args.dq, dk);
    }
  }
  store_rows(sequence, key0, args.d.dk, head * args.dq, column, args.dq, args.alpha, dk);
  store_rows(sequence, key0, args.d.dv, head * args.dv, column, args.dv, A(1), dv);
}

}  // namespace turbogr::ops
