// Gradients of the position and time tables, without atomics: a block takes all tiles of a sequence
// that lie on one diagonal, in every head, and leaves its sums in memory; a second kernel adds the
// blocks' sums in order.
#pragma once

#include "turbogr/ops/attention/portable/attention_portable.cuh"

namespace turbogr::ops {

// A row of bins for each query of a tile: no two threads add to one bin.
template <class A>
inline constexpr int kTimeBinBytes = kTimeBuckets* Cut<A>::kRows* static_cast<int>(sizeof(A));

// sums(d) of the diagonal key - query = d - (rows - 1): thread d walks it.
template <class A>
__device__ void add_diagonals(const PortableShared<A>& s, A& sum) {
  constexpr int kRows = Cut<A>::kRows;
  const int d = static_cast<int>(threadIdx.x) - (kRows - 1);
  if (d >= kRows) return;
  for (int key = 0; key < kRows; ++key) {
    const int query = key - d;
    if (query >= 0 && query < kRows) sum += s.weights[key * Cut<A>::kPitch + query];
  }
}

// The last threads take a query each and its keys in order, adding up while the bucket stays.
template <class A>
__device__ void add_buckets(const PortableShared<A>& s, A* bins) {
  constexpr int kRows = Cut<A>::kRows;
  const int query = static_cast<int>(threadIdx.x) - (kPortableThreads - kRows);
  if (query < 0) return;
  int bucket = 0;
  std::uint64_t begin = 0;  // gaps of the bucket
  std::uint64_t end = s.buckets.first_gap[1];
  A sum = 0;
  for (int key = 0; key < kRows; ++key) {
    const A value = s.weights[key * Cut<A>::kPitch + query];
    if (value == A(0)) continue;
    const std::uint64_t gap = device_time_gap(s.query_times[query], s.key_times[key]);
    if (gap < begin || gap >= end) {
      bins[bucket * kRows + query] += sum;
      sum = 0;
      bucket = bucket_of_gap(s.buckets, gap);
      begin = bucket == 0 ? 0 : s.buckets.first_gap[bucket];
      end = bucket == kTimeBuckets - 1 ? ~std::uint64_t{0} : s.buckets.first_gap[bucket + 1];
    }
    sum += value;
  }
  bins[bucket * kRows + query] += sum;
}

// One block a slot and side of the diagonal: tiles whose query block minus key block is the slot's
// number, or minus it (blockIdx.y 1, only where a prefix looks ahead).
template <class T, bool kFuxi>
__global__ void __launch_bounds__(kPortableThreads)
    portable_table_gradient(const __grid_constant__ PortableArgs<T> args) {
  using A = Accum<T>;
  constexpr int kRows = Cut<A>::kRows;
  __shared__ PortableShared<A> s;
  extern __shared__ __align__(16) unsigned char dynamic[];
  A* bins = reinterpret_cast<A*>(dynamic);
  const bool want_position = !args.d.dbias.position.empty();
  const bool want_time = !args.d.dbias.time.empty();
  const PortableSequence sequence = sequence_of(args, blockIdx.x);
  const bool ahead = blockIdx.y == 1;
  const int step = sequence.block;
  const std::int64_t blocks = (sequence.mask.length + kRows - 1) / kRows;
  const bool work = step < blocks && !(ahead && step == 0);
  fill_tables(s, args.p.bias.time);
  if (want_time) {
    for (int i = threadIdx.x; i < kTimeBuckets * kRows; i += kPortableThreads) bins[i] = A(0);
  }
  A diagonal = 0;
  for (int head = 0; work && head < args.p.heads; ++head) {
    for (std::int64_t block = 0; block + step < blocks; ++block) {
      const std::int64_t query0 = (ahead ? block : block + step) * kRows;
      const std::int64_t key0 = (ahead ? block + step : block) * kRows;
      if (!sequence.mask.may_see(query0, kRows, key0, kRows)) continue;
      __syncthreads();
      load_times(s, args, sequence, query0, key0);
      const auto v = tile_rows<A, T>(sequence, args.p.v, key0, head * args.dv);
      if constexpr (kFuxi) {
        for (int map = 0; map < 2; ++map) {
          if (map == 0 ? !want_position : !want_time) continue;
          Fragment<A> products = multiply_rows(
              s,
              tile_rows<A, T>(sequence, args.dout, query0, head * args.out_columns + map * args.dv),
              v, args.dv);
          for_pairs<A, false>([&](int i, int j, int query, int key) {
            if (!sequence.visible(query0 + query, key0 + key)) products.at[i][j] = A(0);
          });
          store_weights(s, products);
          __syncthreads();
          if (map == 0) {
            add_diagonals(s, diagonal);
          } else {
            add_buckets(s, bins);
          }
        }
      } else {
        const Fragment<A> products =
            multiply_rows(s, tile_rows<A, T>(sequence, args.p.q.values, query0, head * args.dq),
                          tile_rows<A, T>(sequence, args.p.k, key0, head * args.dq), args.dq);
        Fragment<A> value, slope;
        apply_silu<T, false>(s, args, sequence, query0, key0, products, value, slope);
        const Fragment<A> dweights = multiply_rows(
            s, tile_rows<A, T>(sequence, args.dout, query0, head * args.out_columns), v, args.dv);
        for_pairs<A, false>([&](int i, int j, int, int) { slope.at[i][j] *= dweights.at[i][j]; });
        store_weights(s, slope);
        __syncthreads();
        if (want_position) add_diagonals(s, diagonal);
        if (want_time) add_buckets(s, bins);
      }
    }
  }
  __syncthreads();
  const std::int64_t slot = blockIdx.y * args.slots + blockIdx.x;
  if (want_position && threadIdx.x < 2 * kRows) {
    args.position_sums[slot * 2 * kRows + threadIdx.x] = diagonal;
  }
  if (want_time && threadIdx.x < kTimeBuckets) {
    A sum = 0;
    // Each bucket starts at another query, so that a warp's reads fall into different banks.
    for (int i = 0; i < kRows; ++i) {
      sum += bins[threadIdx.x * kRows + (threadIdx.x + i) % kRows];
    }
    args.time_sums[slot * kTimeBuckets + threadIdx.x] = sum;
  }
}

// One warp a weight: its sum over the sequences, lane by lane, then across the lanes.
template <class T>
__global__ void add_position_sums(const __grid_constant__ PortableArgs<T> args) {
  constexpr int kRows = Cut<Accum<T>>::kRows;
  const View<Accum<T>, 1>& to = args.d.dbias.position;
  const std::int64_t entry =
      static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (entry >= to.shape[0]) return;
  const int lane = threadIdx.x % 32;
  const std::int64_t back = to.shape[0] / 2 - entry;  // query - key
  double sum = 0;
  for (int side = 0; side < 2; ++side) {
    // The two tile diagonals that hold this one.
    const std::int64_t floor = back >= 0 ? back / kRows : -((kRows - 1 - back) / kRows);
    const std::int64_t step = floor + side;
    const std::int64_t diagonal = step * kRows - back + kRows - 1;
    if (diagonal < 0 || diagonal > 2 * kRows - 2) continue;
    const std::int64_t half = step < 0 ? 1 : 0;
    if (half == 1 && args.p.mask.num_prefix.empty()) continue;
    const std::int64_t slot_in = step < 0 ? -step : step;
    for (std::int64_t b = lane; b < args.batch; b += 32) {
      const std::int64_t length = args.p.q.offsets.data[b + 1] - args.p.q.offsets.data[b];
      if (slot_in * kRows >= length) continue;
      const std::int64_t slot =
          half * args.slots + first_slot(args.p.q.offsets, b, kRows) + slot_in;
      sum += args.position_sums[slot * 2 * kRows + diagonal];
    }
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane == 0) to.data[entry] += static_cast<Accum<T>>(sum);
}

// One block of 256 threads a bucket.
template <class T>
__global__ void add_time_sums(const __grid_constant__ PortableArgs<T> args, std::int64_t slots) {
  __shared__ double sums[256];
  const int bucket = blockIdx.x;
  double sum = 0;
  for (std::int64_t slot = threadIdx.x; slot < slots; slot += 256) {
    sum += args.time_sums[slot * kTimeBuckets + bucket];
  }
  sums[threadIdx.x] = sum;
  for (int step = 128; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
  }
  if (threadIdx.x == 0) args.d.dbias.time.data[bucket] += static_cast<Accum<T>>(sums[0]);
}

}  // namespace turbogr::ops
