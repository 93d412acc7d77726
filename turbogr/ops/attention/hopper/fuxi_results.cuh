// From a warp's sums to rows of bf16 in all heads.
#pragma once

#include <cuda_bf16.h>

#include "turbogr/ops/attention/hopper/fuxi_args.cuh"

namespace turbogr::cuda {

inline constexpr int kFuxiColumns = 64 * kFuxiPanels;  // of a tile of results
inline constexpr int kFuxiStagingBytes = 16 * 128;     // of a warp: 16 rows of a panel

// Four 8 x 8 blocks of bf16 from shared memory to the registers of a product.
__device__ __forceinline__ void load_blocks(std::uint32_t* r, std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// Where a lane writes: rows lane / 8, 4 more and so on of a warp's 16, 16 bytes of each panel's
// line.
struct ResultPlaces {
  __nv_bfloat16* at[kFuxiPanels];  // the first of those rows
  int end[kFuxiPanels];  // rows from there on that are in the sequence; none past the width

  // `to` is the warp's first row, `rows` what the sequence has from there on.
  __device__ __forceinline__ void find(const FuxiValuesArgs& args, __nv_bfloat16* to, int rows,
                                       int first_panel) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    to += lane / 8 * args.to_stride + 8 * (lane % 8);
    int head = first_panel / args.panels_per_head;
    int column = first_panel % args.panels_per_head * 64;
    TGR_UNROLL
    for (int panel = 0; panel < kFuxiPanels; ++panel) {
      const bool there = head < args.heads && column + 8 * (lane % 8) < args.width;
      end[panel] = there ? rows - lane / 8 : 0;
      at[panel] = to + head * args.to_head_stride + column;
      column += 64;
      if (column >= args.width) {
        column = 0;
        ++head;
      }
    }
  }
  // Asks for what will be added to.
  __device__ __forceinline__ void prefetch(std::int64_t stride) const {
    TGR_UNROLL
    for (int i = 0; i < 4 * kFuxiPanels; ++i) {
      if (i % 4 * 4 < end[i / 4]) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(at[i / 4] + i % 4 * 4 * stride));
      }
    }
  }
};

// Writes a warp's 16 rows of sums as bf16, panel by panel through shared memory, so that eight
// lanes write a line of 128 bytes; backward adds them to what is there.
template <bool kAdd>
__device__ __forceinline__ void store_sums(const float (&sums)[kFuxiColumns / 2],
                                           const ResultPlaces& places, std::int64_t stride,
                                           char* staging) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Where this lane's line of four 8 x 8 blocks lies; the swizzle exchanges 16-byte pieces.
  const std::uint32_t line = shared_address(staging) + lane % 16 * 128;
  const auto block = [&](int i) { return line + ((2 * i + lane / 16) ^ lane % 8) * 16; };
  const auto piece = [&](int i) {
    const int row = 4 * i + lane / 8;
    return reinterpret_cast<uint4*>(staging + row * 128 + (lane % 8 ^ row % 8) * 16);
  };
  [[maybe_unused]] uint4 old[kAdd ? 4 * kFuxiPanels : 1];  // all on their way at once
  if constexpr (kAdd) {
    TGR_UNROLL
    for (int i = 0; i < 4 * kFuxiPanels; ++i) {
      old[i] = make_uint4(0, 0, 0, 0);
      if (i % 4 * 4 < places.end[i / 4]) {
        old[i] = *reinterpret_cast<const uint4*>(places.at[i / 4] + i % 4 * 4 * stride);
      }
    }
  }
  TGR_UNROLL
  for (int panel = 0; panel < kFuxiPanels; ++panel) {
    if constexpr (kAdd) {
      TGR_UNROLL
      for (int i = 0; i < 4; ++i) *piece(i) = old[4 * panel + i];
      __syncwarp();
    }
    TGR_UNROLL
    for (int i = 0; i < 4; ++i) {  // sixteen columns each
      const float* x = sums + 32 * panel + 8 * i;
      std::uint32_t r[4];
      if constexpr (kAdd) {
        load_blocks(r, block(i));
        TGR_UNROLL
        for (int j = 0; j < 4; ++j) {
          r[j] = pack_bf16(x[2 * j] + __uint_as_float(r[j] << 16),
                           x[2 * j + 1] + __uint_as_float(r[j] & 0xffff0000u));
        }
      } else {
        TGR_UNROLL
        for (int j = 0; j < 4; ++j) r[j] = pack_bf16(x[2 * j], x[2 * j + 1]);
      }
      store_blocks(block(i), r);
    }
    __syncwarp();
    TGR_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint4 four = *piece(i);
      if (4 * i < places.end[panel]) {
        *reinterpret_cast<uint4*>(places.at[panel] + 4 * i * stride) = four;
      }
    }
    __syncwarp();
  }
}

}  // namespace turbogr::cuda
