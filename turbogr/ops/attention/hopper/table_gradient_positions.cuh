// Sums of units' gradients along their diagonals (attention_table_gradients.cu), of two warps.
#pragma once

#include "turbogr/cuda/hopper.cuh"
#include "turbogr/ops/attention/hopper/attention_pairs.cuh"

namespace turbogr::cuda::table_gradients {

// Sums of a warp's diagonals lie eight lanes to a row; with this pitch in eight banks.
constexpr int kDiagonals = 88;
constexpr int kDiagonalPitch = 92;

// A warp's 32 keys x 64 queries of units added up in f32 by the tensor cores, as a product with the
// identity: they take bf16 as it is. Rows are keys, in the registers of a product.
struct UnitSums {
  float at[2][8][4] = {};

  // Returns this lane's share of the sum of all.
  __device__ __forceinline__ float add(const char* unit) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int group = lane / 4;
    const std::uint32_t identity = group / 2 == lane % 4 ? 0x3f80u << (group % 2 * 16) : 0;
    const std::uint32_t base =
        shared_address(unit + (threadIdx.x / 32 * 32 + lane % 16) * kLineBytes);
    float rows[4] = {};
    TGR_UNROLL
    for (int m = 0; m < 2; ++m) {
      TGR_UNROLL
      for (int step = 0; step < 4; ++step) {
        std::uint32_t r[4];
        load_blocks(base + m * 16 * kLineBytes + ((2 * step + lane / 16) ^ (lane & 7)) * 16, r);
        TGR_UNROLL
        for (int i = 0; i < 2; ++i) {
          float(&c)[4] = at[m][2 * step + i];
          asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, "
              "{%6}, "
              "{%0, %1, %2, %3};"
              : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
              : "r"(r[2 * i]), "r"(r[2 * i + 1]), "r"(identity));
        }
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, "
            "%7}, "
            "{%8, %8}, {%0, %1, %2, %3};"
            : "+f"(rows[0]), "+f"(rows[1]), "+f"(rows[2]), "+f"(rows[3])
            : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(0x3f803f80u));
      }
    }
    return 0.25f * (rows[0] + rows[2]);  // four lanes have the same rows
  }

  // The sums of differences query - key = first - 63 and on, with `scratch` for both warps'; leaves
  // the sums at zero.
  __device__ __forceinline__ void flush(float* scratch, const BiasArgs& bias, int first) {
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    // Registers whose difference is 8 j + column - row, of the lane's columns and rows of a block.
    TGR_UNROLL
    for (int j = -3; j < 8; ++j) {
      TGR_UNROLL
      for (int i = 0; i < 2; ++i) {
        float sum = 0;
        TGR_UNROLL
        for (int block = 0; block < 4; ++block) {
          const int n = j + block;
          if (n >= 0 && n < 8) sum += at[block / 2][n][block % 2 * 2 + i];
        }
        const int column = lane % 4 * 2 + i;
        scratch[(thread / 32 * 8 + column) * kDiagonalPitch + 8 * j - lane / 4 + 31] = sum;
      }
    }
    __syncthreads();
    for (int d = thread; d < 2 * kUnit - 1; d += kUnit) {
      float sum = 0;
      TGR_UNROLL
      for (int part = 0; part < 16; ++part) {
        const int from = d - part % 8 - (part < 8 ? 32 : 0);
        if (from >= 0 && from < kDiagonals) sum += scratch[part * kDiagonalPitch + from];
      }
      const int offset = first + d - (kUnit - 1);
      if (offset >= 0 && offset < bias.position_sums.size) bias.position_sums.add(0, offset, sum);
    }
    *this = {};
  }
};

}  // namespace turbogr::cuda::table_gradients
