// Pieces that all attention kernels of long sequences share: handing out work, loading tiles,
// writing a tile of results, SiLU.
#pragma once

#include <cuda_bf16.h>

#include "turbogr/cuda/check.cuh"
#include "turbogr/cuda/hopper.cuh"
#include "turbogr/ops/attention/hopper/attention_args.cuh"

namespace turbogr::cuda {

// One thread a block asks; the first item goes by the block's own number, so that nothing waits at
// the start.
struct ItemSource {
  const AttentionArgs& args;
  int end;
  int next;

  __device__ explicit ItemSource(const AttentionArgs& a)
      : args(a), end(a.item_bounds[1]), next(a.item_bounds[0] + static_cast<int>(blockIdx.x)) {}

  __device__ bool take(AttentionItem& item) {
    if (next >= end) return false;
    item = args.items[next];
    next = args.item_bounds[0] + static_cast<int>(gridDim.x) + atomicAdd(args.next_item, 1);
    return true;
  }

  // After the last take: the last block of the grid leaves the counters as it found them.
  __device__ void finish() {
    __threadfence();
    if (atomicAdd(args.next_item + 1, 1) == static_cast<int>(gridDim.x) - 1) {
      args.next_item[0] = 0;
      args.next_item[1] = 0;
    }
  }
};

// Asks for a tile of kRows rows from `row` on, one head's columns.
template <int D, int kRows>
__device__ __forceinline__ void load_tile(SharedAddress to, const CUtensorMap* map,
                                          SharedAddress barrier, int head, int row) {
  using Shape = PanelShape<D>;
  barrier_expect(barrier, kRows * D * 2);
  for (int p = 0; p < Shape::kPanels; ++p) {
    load_box(to + p * kRows * Shape::kLineBytes, map, barrier, p * Shape::kColumns, head, row);
  }
}

// A thread of a warpgroup of consumers.
struct Consumer {
  int group = threadIdx.x / 128;
  bool leader = threadIdx.x % 128 == 0;
  int lane = threadIdx.x % 32;
  int row =
      threadIdx.x / 32 % 4 * 16 + lane / 4;  // its first of a product; the second is 8 further
};

// A place in a ring of kStages buffers and the phase of its barriers, in one register.
template <int kStages>
struct RingPlace {
  unsigned turn = 0;
  __device__ __forceinline__ int index() const { return static_cast<int>(turn % kStages); }
  __device__ __forceinline__ int phase() const { return static_cast<int>(turn / kStages); }
  __device__ __forceinline__ void advance() { turn = (turn + 1) % (2 * kStages); }
};

// Four registers of each of four neighbouring lanes, transposed.
__device__ __forceinline__ void transpose_quad(std::uint32_t (&r)[4]) {
  const bool odd = threadIdx.x & 1;
  const bool high = threadIdx.x & 2;
  TGR_UNROLL
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t got = __shfl_xor_sync(~0u, odd ? r[i] : r[i + 1], 1);
    if (odd) {
      r[i] = got;
    } else {
      r[i + 1] = got;
    }
  }
  TGR_UNROLL
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t got = __shfl_xor_sync(~0u, high ? r[i] : r[i + 2], 2);
    if (high) {
      r[i] = got;
    } else {
      r[i + 2] = got;
    }
  }
}

// Two bf16 gradients times SiLU's derivative at two bf16 values.
__device__ __forceinline__ std::uint32_t through_silu(std::uint32_t gradients,
                                                      std::uint32_t before) {
  const auto derivative = [](float x) {
    const float s = __fdividef(1.f, 1.f + __expf(-x));
    return s * fmaf(x, 1.f - s, 1.f);
  };
  return pack_bf16(
      __uint_as_float(gradients << 16) * derivative(__uint_as_float(before << 16)),
      __uint_as_float(gradients & 0xffff0000u) * derivative(__uint_as_float(before & 0xffff0000u)));
}

// What store_tile multiplies by: rows before SiLU where this lane's results go. All are loaded
// before the first is used, to wait once.
template <int N>
struct BeforeRows {
  static constexpr int kGroups = N / 32;
  static constexpr int kRest = N / 8 - 4 * kGroups;
  bool there = false;
  uint4 eights[2][kGroups + 1];
  std::uint32_t twos[2][kRest + 1];

  __device__ __forceinline__ void load(const BeforeSilu& before, int rows, int columns) {
    there = true;
    const int lane = threadIdx.x % 32;
    TGR_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = threadIdx.x / 32 % 4 * 16 + lane / 4 + 8 * half;
      if (row >= rows) continue;
      const __nv_bfloat16* from = before.data + row * before.stride;
      TGR_UNROLL
      for (int group = 0; group < kGroups; ++group) {
        const int column = 32 * group + 8 * (lane % 4);
        if (column < columns) {
          eights[half][group] = __ldcs(reinterpret_cast<const uint4*>(from + column));
        }
      }
      TGR_UNROLL
      for (int group = 0; group < kRest; ++group) {
        const int column = 32 * kGroups + 8 * group + 2 * (lane % 4);
        if (column < columns) {
          twos[half][group] = __ldcs(reinterpret_cast<const std::uint32_t*>(from + column));
        }
      }
    }
  }
};

// 16 bytes at once; the compiler takes plain stores apart here and there.
__device__ __forceinline__ void store_words(void* to, const std::uint32_t (&r)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
}

// Writes the 64 x N sums of a warpgroup as bf16, 16 bytes a lane where N allows; rows and columns
// past the end are left alone. `to` begins at the tile's first row and column.
template <int N>
__device__ __forceinline__ void store_tile(const float (&sums)[N / 2], float scale,
                                           __nv_bfloat16* to, std::int64_t stride, int rows,
                                           int columns, const BeforeRows<N>& before = {}) {
  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x / 32 % 4 * 16 + lane / 4;
  TGR_UNROLL
  for (int half = 0; half < 2; ++half) {
    TGR_UNROLL
    for (int group = 0; group < N / 32; ++group) {
      std::uint32_t r[4];
      TGR_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * (4 * group + i) + 2 * half;
        r[i] = pack_bf16(sums[at] * scale, sums[at + 1] * scale);
      }
      transpose_quad(r);
      const int column = 32 * group + 8 * (lane % 4);
      if (row + 8 * half < rows && column < columns) {
        if (before.there) {
          const uint4 x = before.eights[half][group];
          r[0] = through_silu(r[0], x.x);
          r[1] = through_silu(r[1], x.y);
          r[2] = through_silu(r[2], x.z);
          r[3] = through_silu(r[3], x.w);
        }
        store_words(to + (row + 8 * half) * stride + column, r);
      }
    }
    TGR_UNROLL
    for (int group = N / 32 * 4; group < N / 8; ++group) {
      const int column = 8 * group + 2 * (lane % 4);
      if (row + 8 * half < rows && column < columns) {
        const int at = 4 * group + 2 * half;
        std::uint32_t two = pack_bf16(sums[at] * scale, sums[at + 1] * scale);
        if (before.there) two = through_silu(two, before.twos[half][group - N / 32 * 4]);
        *reinterpret_cast<std::uint32_t*>(to + (row + 8 * half) * stride + column) = two;
      }
    }
  }
}

// SiLU(2 h) = h + h tanh(h).
__device__ __forceinline__ float silu_of_half(float h) { return fmaf(h, tanh_approximate(h), h); }

// SiLU and its derivative from h = x / 2, by one tanh.
struct SiluParts {
  float value;       // SiLU(x)
  float derivative;  // twice SiLU'(x); the factor 1/2 is in the epilogues
};
__device__ __forceinline__ SiluParts silu_parts(float h) {
  const float t = tanh_approximate(h);
  return {fmaf(h, t, h), fmaf(h, fmaf(-t, t, 1.f), 1.f + t)};
}

// How many blocks the device holds at once: the size of a grid that takes its work from a list.
template <class Kernel>
int resident_blocks(Kernel* kernel, int threads, int shared_bytes) {
  int device = 0;
  int processors = 0;
  int blocks = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
        "cudaFuncSetAttribute");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads,
                                                      static_cast<std::size_t>(shared_bytes)),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return processors * blocks;
}

}  // namespace turbogr::cuda
