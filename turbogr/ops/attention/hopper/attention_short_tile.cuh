// Tiles of a pack in shared memory and their products: 64 rows, of which each of four warps has 16.
// Products are of 16 x 16 blocks, so that a warp can leave out those that no sequence fills.
#pragma once

#include "turbogr/ops/attention/hopper/attention_short.cuh"
#include "turbogr/ops/attention/hopper/attention_tile.cuh"

namespace turbogr::cuda {

inline constexpr int kShortWarps = 4;
inline constexpr int kShortThreads = 32 * kShortWarps;
inline constexpr int kGroup = 16;  // rows of a warp, and of a block along a sum

// Rows of `columns` bf16. The pitch puts eight rows in eight different sets of banks.
template <int kColumns>
struct ShortTile {
  static constexpr int kPitch = 2 * kColumns + 16;
  static constexpr int kBytes = kPackRows * kPitch;

  // Where this lane's row of the block begins that lies at (16 group, 16 step).
  __device__ static __forceinline__ int block(int group, int step) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return (kGroup * group + lane % 16) * kPitch + 32 * step + lane / 16 * 16;
  }
  // The same where the block is to be read transposed, as the first operand of a product.
  __device__ static __forceinline__ int turned_block(int group, int step) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return (kGroup * group + lane / 16 * 8 + lane % 8) * kPitch + 32 * step + lane / 8 % 2 * 16;
  }
};

// Begins to copy the rows of one head; what lies past the last row or column becomes zero.
template <int D>
__device__ __forceinline__ void fetch_tile(SharedAddress to, const __nv_bfloat16* from,
                                           std::int64_t stride, int rows, int columns) {
  constexpr int kPieces = D / 8;
  TGR_UNROLL
  for (int i = 0; i < kPackRows * kPieces / kShortThreads; ++i) {
    const int number = i * kShortThreads + static_cast<int>(threadIdx.x);
    const int row = number / kPieces;
    const int piece = number % kPieces;
    const bool there = row < rows && 8 * piece < columns;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     to + row * ShortTile<D>::kPitch + 16 * piece),
                 "l"(there ? from + row * stride + 8 * piece : from), "r"(there ? 16 : 0)
                 : "memory");
  }
}
__device__ __forceinline__ void wait_fetched() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// sums += a b, 16 x 8.
__device__ __forceinline__ void multiply_block(float* sums, const std::uint32_t (&a)[4],
                                               std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The 16 x 16 products of rows of two tiles, summed over columns: x_i . y_j.
template <int D>
__device__ __forceinline__ void multiply_rows(float (&sums)[8], SharedAddress x, int x_group,
                                              SharedAddress y, int y_group) {
  TGR_UNROLL
  for (int i = 0; i < 8; ++i) sums[i] = 0;
  TGR_UNROLL
  for (int step = 0; step < D / 16; ++step) {
    std::uint32_t a[4];
    std::uint32_t b[4];
    load_blocks(x + ShortTile<D>::block(x_group, step), a);
    load_blocks(y + ShortTile<D>::block(y_group, step), b);
    multiply_block(sums, a, b[0], b[2]);
    multiply_block(sums + 4, a, b[1], b[3]);
  }
}

// Sums of a warp's 16 rows of D columns, in pieces that are stored one after the other.
template <int D>
struct RowSums {
  static constexpr int kPiece = D < 64 ? D : 64;
  float at[D / kPiece][kPiece / 2];

  __device__ __forceinline__ void clear() {
    TGR_UNROLL
    for (auto& piece : at) {
      TGR_UNROLL
      for (float& x : piece) x = 0;
    }
  }
  // += weights (16 x 16, packed) times rows of a tile.
  __device__ __forceinline__ void add(const std::uint32_t (&weights)[4], SharedAddress tile,
                                      int group) {
    TGR_UNROLL
    for (int step = 0; step < D / 16; ++step) {
      std::uint32_t b[4];
      load_blocks_transposed(tile + ShortTile<D>::block(group, step), b);
      float* sums = at[16 * step / kPiece] + 16 * step % kPiece / 2;
      multiply_block(sums, weights, b[0], b[1]);
      multiply_block(sums + 4, weights, b[2], b[3]);
    }
  }
  __device__ __forceinline__ void store(float scale, __nv_bfloat16* to, std::int64_t stride,
                                        int rows, int columns) const {
    TGR_UNROLL
    for (int piece = 0; piece < D / kPiece; ++piece) {
      store_tile<kPiece>(at[piece], scale, to + piece * kPiece, stride, rows,
                         columns - piece * kPiece);
    }
  }
  // Times SiLU's derivative at the rows `before`.
  __device__ __forceinline__ void store_through_silu(float scale, const BeforeSilu& before,
                                                     __nv_bfloat16* to, std::int64_t stride,
                                                     int rows, int columns) const {
    TGR_UNROLL
    for (int piece = 0; piece < D / kPiece; ++piece) {
      BeforeRows<kPiece> values;
      values.load({before.data + piece * kPiece, before.stride}, rows, columns - piece * kPiece);
      store_tile<kPiece>(at[piece], scale, to + piece * kPiece, stride, rows,
                         columns - piece * kPiece, values);
    }
  }
};

}  // namespace turbogr::cuda
