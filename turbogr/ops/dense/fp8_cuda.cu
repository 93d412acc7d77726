#include "turbogr/ops/dense/fp8_cuda.cuh"

namespace turbogr::ops {
namespace {

constexpr int kSide = 128, kWords = kSide / 8;  // of a block's tile; words of eight bytes

// Eight rows of eight bytes become eight columns.
__device__ void transpose(uint2 (&rows)[8]) {
  std::uint32_t columns[8][2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {  // of the columns
#pragma unroll
    for (int four = 0; four < 2; ++four) {  // of the rows
      std::uint32_t word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) word[i] = half == 0 ? rows[4 * four + i].x : rows[4 * four + i].y;
      const std::uint32_t low01 = __byte_perm(word[0], word[1], 0x5140);
      const std::uint32_t low23 = __byte_perm(word[2], word[3], 0x5140);
      const std::uint32_t high01 = __byte_perm(word[0], word[1], 0x7362);
      const std::uint32_t high23 = __byte_perm(word[2], word[3], 0x7362);
      columns[4 * half][four] = __byte_perm(low01, low23, 0x5410);
      columns[4 * half + 1][four] = __byte_perm(low01, low23, 0x7632);
      columns[4 * half + 2][four] = __byte_perm(high01, high23, 0x5410);
      columns[4 * half + 3][four] = __byte_perm(high01, high23, 0x7632);
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) rows[i] = {columns[i][0], columns[i][1]};
}

// A block's tile, 8 x 8 a thread: row-major bytes to the other layout, 128 of a column at a time.
__device__ void store_columns(uint2 (&bytes)[8], const Fp8Rows<bf16>& out) {
  __shared__ uint2 tile[kSide * kWords];
  const int across = static_cast<int>(threadIdx.x) % kWords;
  const int down = static_cast<int>(threadIdx.x) / kWords;
  transpose(bytes);
  // A column's words lie crosswise, so that neither way meets a bank twice.
#pragma unroll
  for (int c = 0; c < 8; ++c) tile[(across * 8 + c) * kWords + (down ^ across)] = bytes[c];
  __syncthreads();
  const std::int64_t row = std::int64_t{blockIdx.x} * kSide + across * 8;
  const std::int64_t padded = fp8_padded(out.rows);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int c = i * kWords + down;
    const std::int64_t column = std::int64_t{blockIdx.y} * kSide + c;
    if (column < out.cols) {
      *reinterpret_cast<uint2*>(out.by_column + column * padded + row) =
          tile[c * kWords + (across ^ (c / 8))];
    }
  }
}

// Limited by bandwidth: 2 bytes in, 1 out a layout. The last block to be done makes the scale ready
// for the next matrix.
__global__ void __launch_bounds__(256) quantise_kernel(Rows<const bf16> x, Fp8Rows<bf16> out) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kSide + threadIdx.x / kWords * 8;
  const std::int64_t col = std::int64_t{blockIdx.y} * kSide + threadIdx.x % kWords * 8;
  const float scale = fp8_scale(out.format, out.scale->largest);
  uint4 raw[8] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (row + i < x.rows && col < x.cols) {
      raw[i] = *reinterpret_cast<const uint4*>(x.row(row + i) + col);
    }
  }
  std::uint32_t largest = 0;
  uint2 bytes[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    cuda::Eight<float> values = cuda::unpack(raw[i]);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      largest = max(largest, magnitude_bits(values[e]));
      values[e] *= scale;
    }
    bytes[i] = to_fp8_bytes(values, out.format);
  }
  if (out.by_row != nullptr && col < x.cols) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (row + i < x.rows) {
        *reinterpret_cast<uint2*>(out.by_row + (row + i) * x.cols + col) = bytes[i];
      }
    }
  }
  if (out.by_column != nullptr) store_columns(bytes, out);
  note_largest(out.scale, largest);
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  if (atomicAdd(&out.scale->parts, 1u) + 1 != gridDim.x * gridDim.y) return;
  turn_scale(out.format, out.scale);
  out.scale->parts = 0;
}

// Limited by bandwidth: 1 byte in, 1 out.
__global__ void __launch_bounds__(256) transpose_kernel(Fp8Rows<bf16> x) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kSide + threadIdx.x / kWords * 8;
  const std::int64_t col = std::int64_t{blockIdx.y} * kSide + threadIdx.x % kWords * 8;
  uint2 bytes[8] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (row + i < x.rows && col < x.cols) {
      bytes[i] = *reinterpret_cast<const uint2*>(x.by_row + (row + i) * x.cols + col);
    }
  }
  store_columns(bytes, x);
  if (threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0) turn_scale(x.format, x.scale);
}

dim3 fp8_tiles(std::int64_t rows, std::int64_t cols) {
  return {static_cast<unsigned>(fp8_padded(rows) / kSide),
          static_cast<unsigned>(cuda::divide_up(cols, kSide))};
}

}  // namespace

void finish_fp8(cudaStream_t stream, const Fp8Rows<bf16>& x) {
  transpose_kernel<<<fp8_tiles(x.rows, x.cols), 256, 0, stream>>>(x);
}

namespace kernels {

int compute_capability() {
  int device = 0, major = 0;
  TGR_CUDA_CALL(cudaGetDevice(&device));
  TGR_CUDA_CALL(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major;
}

void quantise(Cuda cuda, Rows<const bf16> x, const Fp8Rows<bf16>& out) {
  quantise_kernel<<<fp8_tiles(x.rows, x.cols), 256, 0, cuda::stream_of(cuda.stream)>>>(x, out);
  cuda::check_launch("quantise");
}

}  // namespace kernels
}  // namespace turbogr::ops
