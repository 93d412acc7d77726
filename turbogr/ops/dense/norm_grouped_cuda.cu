// Norms of bf16 rows of a multiple of 1024 columns, without weights: what large models have. A warp
// has 1024 columns of a row, four 16-byte words of each matrix a thread, all asked for before the
// first is used; rows of 1024 need no exchange between warps. Matrices stay packed in registers and
// are unpacked where they are used.
#include <algorithm>

#include "turbogr/ops/dense/fp8_cuda.cuh"
#include "turbogr/ops/dense/norm_cuda.cuh"

namespace turbogr::ops::kernels {
namespace {

using cuda::Eight;
using cuda::kColumns;
using cuda::kGroups;

constexpr unsigned kSumBlocks = 528;  // four for each SM of a Hopper GPU

// A thread's share of a row.
struct Share {
  uint4 words[kGroups];

  __device__ void load(const bf16* row, std::int64_t column, std::int64_t step) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      words[g] = *reinterpret_cast<const uint4*>(row + column + g * step);
    }
  }
  __device__ Eight<float> operator[](int g) const { return cuda::unpack(words[g]); }
};

template <NormOutput kOutput, class Store>
__global__ void __launch_bounds__(128) norm_grouped_kernel(NormArgs<bf16> args, Store store) {
  __shared__ float shared[32];
  const std::int64_t cols = args.x.cols;
  const std::int64_t c = std::int64_t{threadIdx.x} * kColumns;
  const std::int64_t step = std::int64_t{blockDim.x} * kColumns;
  const std::int64_t r = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const bool there = r < args.x.rows;
  Share x = {}, gate = {};
  if (there) {
    x.load(args.x.row(r), c, step);
    if constexpr (kOutput != NormOutput::kPlain) gate.load(args.gate.row(r), c, step);
  }
  float mean = 0;
  if (args.layer) {
    float sum[1] = {0};
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const Eight<float> value = x[g];
#pragma unroll
      for (int i = 0; i < kColumns; ++i) sum[0] += value[i];
    }
    cuda::team_sum(sum, shared);
    mean = sum[0] / static_cast<float>(cols);
  }
  float squares[1] = {0};
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const Eight<float> value = x[g];
#pragma unroll
    for (int i = 0; i < kColumns; ++i) squares[0] += (value[i] - mean) * (value[i] - mean);
  }
  cuda::team_sum(squares, shared);
  if (!there) return;
  const float rstd = 1.0f / sqrtf(squares[0] / static_cast<float>(cols) + args.eps);
  if (threadIdx.x == 0) {
    if (args.layer) args.mean[r] = mean;
    args.rstd[r] = rstd;
  }
  const bool drops = kOutput != NormOutput::kPlain && args.draw.threshold != 0;
  const DropoutRow drop = args.draw.row(drops ? r : 0);
  store.start();
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const std::int64_t column = c + g * step;
    constexpr std::int64_t kBefore = kOutput == NormOutput::kConcat ? 2 : 0;
    Eight<float> value = x[g];
#pragma unroll
    for (int i = 0; i < kColumns; ++i) value[i] = (value[i] - mean) * rstd;
    if constexpr (kOutput != NormOutput::kPlain) {
      Eight<float> first = gate[g];
      if (args.silu_gate) {
#pragma unroll
        for (int i = 0; i < kColumns; ++i) first[i] *= cuda::sigmoid(first[i]);
      }
      Eight<float> last = value;
      multiply(last, first);
      if (kOutput == NormOutput::kConcat) {
        if (drops) {
          multiply(first, dropout_factors<true, float>(drop, column));
          multiply(value, dropout_factors<true, float>(drop, cols + column));
        }
        store(r, column, first);
        store(r, cols + column, value);
      }
      if (drops) {
        multiply(last, dropout_factors<true, float>(drop, kBefore * cols + column));
      }
      value = last;
    }
    store(r, kBefore * cols + column, value);
  }
  store.finish();
}

// kSums: the block goes over many rows and leaves the column sums of their residuals.
template <NormOutput kOutput, bool kSums>
__global__ void __launch_bounds__(128, kOutput == NormOutput::kConcat ? 3 : 4)
    norm_backward_grouped_kernel(NormArgs<bf16> args) {
  __shared__ float shared[64];
  const std::int64_t cols = args.x.cols;
  const std::int64_t c = std::int64_t{threadIdx.x} * kColumns;
  const std::int64_t step = std::int64_t{blockDim.x} * kColumns;
  Eight<float> sums[kSums ? kGroups : 1] = {};
  for (std::int64_t base = std::int64_t{blockIdx.x} * blockDim.y; base < args.x.rows;
       base += std::int64_t{gridDim.x} * blockDim.y) {
    const std::int64_t r = base + threadIdx.y;
    const bool there = r < args.x.rows;
    const bool adds = kOutput == NormOutput::kPlain && args.residual.data != nullptr;
    Share x = {}, dy = {}, gate = {}, second = {}, both = {};  // gate: or the residual
    float mean = 0, rstd = 0;
    if (there) {
      x.load(args.x.row(r), c, step);
      dy.load(args.dy.row(r), c, step);
      if constexpr (kOutput != NormOutput::kPlain) {
        gate.load(args.gate.row(r), c, step);
      } else if (adds) {
        gate.load(args.residual.row(r), c, step);
      }
      if constexpr (kOutput == NormOutput::kConcat) {
        second.load(args.dy.row(r) + cols, c, step);
        both.load(args.dy.row(r) + 2 * cols, c, step);
      }
      mean = args.layer ? args.mean[r] : 0.0f;
      rstd = args.rstd[r];
    }
    const bool drops = kOutput != NormOutput::kPlain && args.draw.threshold != 0;
    const DropoutRow drop = args.draw.row(drops && there ? r : 0);
    Eight<float> kept[kOutput == NormOutput::kPlain ? 1 : kGroups];  // dL / d norm(x)
    float means[2] = {0, 0};
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const std::int64_t column = c + g * step;
      Eight<float> hat = x[g], d = dy[g];
#pragma unroll
      for (int i = 0; i < kColumns; ++i) hat[i] = (hat[i] - mean) * rstd;
      if constexpr (kOutput != NormOutput::kPlain) {
        Eight<float> open = gate[g], slope, dgate;
#pragma unroll
        for (int i = 0; i < kColumns; ++i) slope[i] = 1;
        if (args.silu_gate) {
#pragma unroll
          for (int i = 0; i < kColumns; ++i) {
            const float s = cuda::sigmoid(open[i]);
            slope[i] = s * (1 + open[i] * (1 - s));
            open[i] *= s;
          }
        }
        if (drops) multiply(d, dropout_factors<true, float>(drop, column));
        if constexpr (kOutput == NormOutput::kGated) {
#pragma unroll
          for (int i = 0; i < kColumns; ++i) {
            dgate[i] = d[i] * hat[i] * slope[i];
            d[i] *= open[i];
          }
        } else {
          Eight<float> middle = second[g], last = both[g];
          if (drops) {
            multiply(middle, dropout_factors<true, float>(drop, cols + column));
            multiply(last, dropout_factors<true, float>(drop, 2 * cols + column));
          }
#pragma unroll
          for (int i = 0; i < kColumns; ++i) {
            dgate[i] = (d[i] + last[i] * hat[i]) * slope[i];
            d[i] = middle[i] + last[i] * open[i];
          }
        }
        if (there) cuda::store_vector(args.dgate.row(r) + column, dgate);
        kept[g] = d;
      }
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        means[0] += d[i];
        means[1] += d[i] * hat[i];
      }
    }
    cuda::team_sum(means, shared);
    if (!there) continue;
    const float mean_slope = args.layer ? means[0] / static_cast<float>(cols) : 0.0f;
    const float mean_along = means[1] / static_cast<float>(cols);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const Eight<float> value = x[g];
      Eight<float> d, residual = {};
      if constexpr (kOutput == NormOutput::kPlain) {
        d = dy[g];
        if (adds) residual = gate[g];
        if constexpr (kSums) {
#pragma unroll
          for (int i = 0; i < kColumns; ++i) sums[g][i] += residual[i];
        }
      } else {
        d = kept[g];
      }
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const float hat = (value[i] - mean) * rstd;
        d[i] = rstd * (d[i] - mean_slope - hat * mean_along) + residual[i];
      }
      cuda::store_vector(args.dx.row(r) + c + g * step, d);
    }
  }
  if constexpr (kSums) {
    // The block's teams one after another: the threads of one column add in order.
    __shared__ float columns[cuda::kMaxWidth];
    for (unsigned y = 0; y < blockDim.y; ++y) {
      if (threadIdx.y == y) {
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          float* to = columns + c + g * step;
#pragma unroll
          for (int i = 0; i < kColumns; ++i) to[i] = y == 0 ? sums[g][i] : to[i] + sums[g][i];
        }
      }
      __syncthreads();
    }
    float* part = args.residual_parts + std::int64_t{blockIdx.x} * cols;
    const auto threads = static_cast<std::int64_t>(blockDim.x * blockDim.y);
    for (std::int64_t i = threadIdx.y * blockDim.x + threadIdx.x; i < cols; i += threads) {
      part[i] = columns[i];
    }
  }
}

template <class Body>
void choose_output(NormOutput output, Body&& body) {
  if (output == NormOutput::kPlain) {
    body(std::integral_constant<NormOutput, NormOutput::kPlain>{});
  } else if (output == NormOutput::kGated) {
    body(std::integral_constant<NormOutput, NormOutput::kGated>{});
  } else {
    body(std::integral_constant<NormOutput, NormOutput::kConcat>{});
  }
}

}  // namespace

void norm_grouped(cudaStream_t stream, NormOutput output, const NormArgs<bf16>& args,
                  const Fp8Rows<bf16>& y8) {
  const dim3 block = cuda::grouped_block(args.x.cols);
  const auto blocks = static_cast<unsigned>(cuda::divide_up(args.x.rows, block.y));
  choose_output(output, [&](auto out) {
    if (y8.scale != nullptr) {
      norm_grouped_kernel<out.value><<<blocks, block, 0, stream>>>(args, Fp8Store{y8});
    } else {
      norm_grouped_kernel<out.value>
          <<<blocks, block, 0, stream>>>(args, PlainStore<bf16, true>{args.y});
    }
  });
  if (y8.scale != nullptr) finish_fp8(stream, y8);
}

std::int64_t norm_backward_grouped(cudaStream_t stream, NormOutput output,
                                   const NormArgs<bf16>& args) {
  const dim3 block = cuda::grouped_block(args.x.cols);
  const auto blocks = static_cast<unsigned>(cuda::divide_up(args.x.rows, block.y));
  if (args.residual_parts != nullptr) {
    const unsigned parts = std::min(blocks, kSumBlocks);
    norm_backward_grouped_kernel<NormOutput::kPlain, true><<<parts, block, 0, stream>>>(args);
    return parts;
  }
  choose_output(output, [&](auto out) {
    norm_backward_grouped_kernel<out.value, false><<<blocks, block, 0, stream>>>(args);
  });
  return 0;
}

}  // namespace turbogr::ops::kernels
