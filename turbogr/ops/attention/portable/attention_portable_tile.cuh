// Tiles of the portable attention kernels. A block of 256 threads holds a square of pairs, each
// thread a small square of it; operands pass through shared memory, converted to Accum<T>.
#pragma once

#include <cstdint>

#include "turbogr/ops/attention/attention_kernels.h"
#include "turbogr/ops/attention/time_bucket.h"

namespace turbogr::ops {

inline constexpr int kPortableThreads = 256;
inline constexpr int kPortableDepth = 32;  // columns, or keys, that one load brings

template <class A>
struct Cut {
  static constexpr int kPer = 16 / static_cast<int>(sizeof(A));  // one 16-byte load
  static constexpr int kRows = 16 * kPer;                        // of a tile: 64, f64 32
  static constexpr int kPitch = kRows + kPer;
};

template <class A>
struct alignas(16) Piece {
  A at[Cut<A>::kPer];
};

// A thread's share of a tile: rows from down(), columns from across().
template <class A>
struct Fragment {
  A at[Cut<A>::kPer][Cut<A>::kPer] = {};
};
template <class A>
__device__ int down() {
  return static_cast<int>(threadIdx.x) / 16 * Cut<A>::kPer;
}
template <class A>
__device__ int across() {
  return static_cast<int>(threadIdx.x) % 16 * Cut<A>::kPer;
}

template <class A>
struct alignas(16) PortableShared {
  A left[kPortableDepth * Cut<A>::kPitch];
  A right[kPortableDepth * Cut<A>::kPitch];
  A weights[Cut<A>::kRows * Cut<A>::kPitch];  // [other side][own side]
  std::int64_t query_times[Cut<A>::kRows];
  std::int64_t key_times[Cut<A>::kRows];
  A time_weights[kTimeBuckets];
  TimeBucketTable buckets;
};

static __device__ const TimeBucketTable kDeviceBuckets = kTimeBucketTable;

__device__ inline int bucket_of_gap(const TimeBucketTable& table, std::uint64_t gap) {
  int bucket = table.first_bucket[64 - __clzll(static_cast<long long>(gap))];
  while (bucket < kTimeBuckets - 1 && gap >= table.first_gap[bucket + 1]) ++bucket;
  return bucket;
}
__device__ inline std::uint64_t device_time_gap(std::int64_t a, std::int64_t b) {
  const auto x = static_cast<std::uint64_t>(a);
  const auto y = static_cast<std::uint64_t>(b);
  return a > b ? x - y : y - x;
}

template <class A>
__device__ void fill_tables(PortableShared<A>& s, const View<const A, 1>& time) {
  if (time.empty()) return;
  for (int i = threadIdx.x; i < kTimeBuckets; i += kPortableThreads) {
    s.time_weights[i] = time.data[i];
    s.buckets.first_gap[i] = kDeviceBuckets.first_gap[i];
    if (i < 65) s.buckets.first_bucket[i] = kDeviceBuckets.first_bucket[i];
  }
}

// A matrix's rows from one tile's first on, at one head's columns; `rows` of them exist.
template <class T>
struct TileRows {
  const T* data;
  std::int64_t stride;
  int rows;
};

// to[c][r], zero where there is no such row or column.
template <class A, class T>
__device__ void load_columns(A* to, const TileRows<T>& from, int column, int width) {
  for (int i = threadIdx.x; i < Cut<A>::kRows * kPortableDepth; i += kPortableThreads) {
    const int c = i % kPortableDepth;
    const int r = i / kPortableDepth;
    const bool there = r < from.rows && column + c < width;
    to[c * Cut<A>::kPitch + r] = there ? convert<A>(from.data[r * from.stride + column + c]) : A(0);
  }
}

// to[r][c], likewise.
template <class A, class T>
__device__ void load_rows(A* to, const TileRows<T>& from, int row, int column, int width) {
  for (int i = threadIdx.x; i < Cut<A>::kRows * kPortableDepth; i += kPortableThreads) {
    const int c = i % Cut<A>::kRows;
    const int r = i / Cut<A>::kRows;
    const bool there = row + r < from.rows && column + c < width;
    to[r * Cut<A>::kPitch + c] =
        there ? convert<A>(from.data[(row + r) * from.stride + column + c]) : A(0);
  }
}

// sum(r, c) += left[k][r] right[k][c] over k.
template <class A>
__device__ void multiply_add(Fragment<A>& sum, const A* left, const A* right, int depth) {
#pragma unroll 8
  for (int k = 0; k < depth; ++k) {
    const Piece<A> a = *reinterpret_cast<const Piece<A>*>(left + k * Cut<A>::kPitch + down<A>());
    const Piece<A> b = *reinterpret_cast<const Piece<A>*>(right + k * Cut<A>::kPitch + across<A>());
#pragma unroll
    for (int i = 0; i < Cut<A>::kPer; ++i) {
#pragma unroll
      for (int j = 0; j < Cut<A>::kPer; ++j) sum.at[i][j] += a.at[i] * b.at[j];
    }
  }
}

// sum(r, c) = own row r . other row c.
template <class A, class T>
__device__ Fragment<A> multiply_rows(PortableShared<A>& s, const TileRows<T>& own,
                                     const TileRows<T>& other, int width) {
  Fragment<A> sum;
  for (int column = 0; column < width; column += kPortableDepth) {
    __syncthreads();
    load_columns(s.left, own, column, width);
    load_columns(s.right, other, column, width);
    __syncthreads();
    multiply_add(sum, s.left, s.right, min(kPortableDepth, width - column));
  }
  return sum;
}

template <class A>
__device__ void store_weights(PortableShared<A>& s, const Fragment<A>& fragment) {
  __syncthreads();
#pragma unroll
  for (int j = 0; j < Cut<A>::kPer; ++j) {
    Piece<A> piece;
#pragma unroll
    for (int i = 0; i < Cut<A>::kPer; ++i) piece.at[i] = fragment.at[i][j];
    *reinterpret_cast<Piece<A>*>(s.weights + (across<A>() + j) * Cut<A>::kPitch + down<A>()) =
        piece;
  }
}

// sum(own r, column c) += weight(r, k) times column c of other row k; columns from `column` on.
template <class A, class T>
__device__ void multiply_weights(PortableShared<A>& s, const TileRows<T>& other, int column,
                                 int width, Fragment<A>& sum) {
  for (int row = 0; row < Cut<A>::kRows; row += kPortableDepth) {
    __syncthreads();
    load_rows(s.right, other, row, column, width);
    __syncthreads();
    multiply_add(sum, s.weights + row * Cut<A>::kPitch, s.right, kPortableDepth);
  }
}

}  // namespace turbogr::ops
