// How kernels over rows are laid out: a thread has eight neighbouring columns, a team of threads
// (one threadIdx.y) a row, and a block several rows. Eight bf16 are one 16-byte access, and one
// Philox block draws the dropout of eight columns.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "turbogr/core/cuda_call.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/view.h"

namespace turbogr::cuda {

inline constexpr int kColumns = 8;
inline constexpr int kMaxTeam = 512;                            // threads
inline constexpr std::int64_t kMaxWidth = kMaxTeam * kColumns;  // of kernels that keep a row

inline cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }

// Throws when a launch failed, in the operator's name.
inline void check_launch(const char* op) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) detail::throw_cuda_error(static_cast<int>(error), op);
}

inline std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// For kernels that keep a whole row in the team's registers.
inline void check_width(const char* op, std::int64_t cols) {
  TGR_CHECK(cols <= kMaxWidth, op, ": rows of ", cols, " columns; on a GPU up to ", kMaxWidth,
            " are possible");
}

// A block for rows of `cols` columns: (team, rows at a time).
inline dim3 team_block(std::int64_t cols, int threads = 128) {
  const auto team =
      static_cast<int>(divide_up(std::max<std::int64_t>(cols, 1), 32 * kColumns)) * 32;
  return dim3(static_cast<unsigned>(team), static_cast<unsigned>(std::max(1, threads / team)));
}

// Where a thread has kGroups times eight columns, a team's width apart: fewer threads a row, each
// with several accesses under way.
inline constexpr int kGroups = 4;

inline bool grouped(std::int64_t cols) {
  return cols > 0 && cols <= kMaxWidth && cols % (32 * kColumns * kGroups) == 0;
}
inline dim3 grouped_block(std::int64_t cols, int threads = 128) {
  const auto team = static_cast<int>(cols / (kColumns * kGroups));
  return dim3(static_cast<unsigned>(team), static_cast<unsigned>(std::max(1, threads / team)));
}

// Whether every row starts at a multiple of 16 bytes and is a multiple of eight columns wide.
template <class T>
bool vectorable(Rows<T> rows) {
  return rows.cols % kColumns == 0 && reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 &&
         rows.stride * sizeof(T) % 16 == 0;
}
template <class T>
bool vectorable(const T* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

template <class A>
struct Eight {
  A v[kColumns];

  __device__ A& operator[](int i) { return v[i]; }
  __device__ const A& operator[](int i) const { return v[i]; }
};

// Good to f32 rounding: 1 / (1 + e^-x) of very negative x is 1 / infinity.
__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
__device__ inline double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

// 16-byte accesses.
__device__ inline Eight<float> unpack(const uint4& raw) {
  const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
  Eight<float> out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = __uint_as_float(words[i] << 16);
    out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
  return out;
}
__device__ inline Eight<float> load_vector(const bf16* p) {
  return unpack(*reinterpret_cast<const uint4*>(p));
}
__device__ inline Eight<float> load_vector(const float* p) {
  const float4 low = reinterpret_cast<const float4*>(p)[0];
  const float4 high = reinterpret_cast<const float4*>(p)[1];
  return {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
}
__device__ inline void store_vector(bf16* p, const Eight<float>& x) {
  std::uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
    words[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
  }
  *reinterpret_cast<uint4*>(p) = {words[0], words[1], words[2], words[3]};
}
__device__ inline void store_vector(float* p, const Eight<float>& x) {
  reinterpret_cast<float4*>(p)[0] = {x[0], x[1], x[2], x[3]};
  reinterpret_cast<float4*>(p)[1] = {x[4], x[5], x[6], x[7]};
}

// Two neighbours in one access, where vectors of eight are not to be had: rows of 50 floats begin
// at multiples of 8 bytes.
template <class T>
struct alignas(2 * sizeof(T)) Two {
  T first, second;
};
template <class T>
__device__ bool pairs(const T* p, std::int64_t count) {
  return count % 2 == 0 && reinterpret_cast<std::uintptr_t>(p) % sizeof(Two<T>) == 0;
}

// The eight values from p on; without kVector only the first `count`, and zeros.
template <bool kVector, class T>
__device__ Eight<Accum<T>> load8(const T* p, std::int64_t count) {
  using A = Accum<T>;
  if constexpr (kVector) {
    return load_vector(p);
  } else {
    Eight<A> out;
    if (pairs(p, count)) {
#pragma unroll
      for (int i = 0; i < kColumns; i += 2) {
        out[i] = out[i + 1] = A(0);
        if (i >= count) continue;
        const Two<T> two = *reinterpret_cast<const Two<T>*>(p + i);
        out[i] = convert<A>(two.first);
        out[i + 1] = convert<A>(two.second);
      }
      return out;
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) out[i] = i < count ? convert<A>(p[i]) : A(0);
    return out;
  }
}
template <bool kVector, class T>
__device__ void store8(T* p, std::int64_t count, const Eight<Accum<T>>& x) {
  if constexpr (kVector) {
    store_vector(p, x);
  } else if (pairs(p, count)) {
#pragma unroll
    for (int i = 0; i < kColumns; i += 2) {
      if (i < count) *reinterpret_cast<Two<T>*>(p + i) = {convert<T>(x[i]), convert<T>(x[i + 1])};
    }
  } else {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      if (i < count) p[i] = convert<T>(x[i]);
    }
  }
}

// Calls body with std::true_type or std::false_type; f64, the reference, has no vector kernels.
template <class T, class Body>
void choose_vector(bool vector, Body&& body) {
  if constexpr (!std::is_same_v<T, double>) {
    if (vector) {
      body(std::true_type{});
      return;
    }
  }
  body(std::false_type{});
}

template <class A>
__device__ A warp_sum(A value) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(0xffffffffu, value, lane);
  return value;
}

// Sums over the team, each thread getting all of them, in an order that depends on the team's size
// alone. Every thread of the block calls it; `shared` has room for kCount a warp of the block.
template <int kCount, class A>
__device__ void team_sum(A (&values)[kCount], A* shared) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = warp_sum(values[i]);
  const int warps = static_cast<int>(blockDim.x) / 32;
  if (warps == 1) return;
  A* own = shared + threadIdx.y * static_cast<unsigned>(warps * kCount);
  if (threadIdx.x % 32 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      own[static_cast<int>(threadIdx.x) / 32 * kCount + i] = values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = A(0);
  for (int warp = 0; warp < warps; ++warp) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] += own[warp * kCount + i];
  }
  __syncthreads();
}

}  // namespace turbogr::cuda
