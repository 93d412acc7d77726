#include <cuda_runtime.h>

#include <algorithm>

#include "turbogr/core/cuda_call.h"
#include "turbogr/ops/update_kernels.h"

namespace turbogr::ops::kernels {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kPiece = UpdateSlices::kPiece;

cudaStream_t stream_of(Cuda cuda) { return static_cast<cudaStream_t>(cuda.stream); }

// The sum over the block, the same order every time; valid in thread 0.
__device__ double block_sum(double value) {
  __shared__ double warps[kThreads / 32];
  for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(~0u, value, step);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  double total = 0;
  if (threadIdx.x == 0) {
    for (double part : warps) total += part;
  }
  __syncthreads();
  return total;
}

// Squares of up to kPiece values; short runs are summed in f32.
__device__ double squares_of(const float* values, std::int64_t count) {
  double total = 0;
  for (std::int64_t begin = 0; begin < count; begin += 8 * kThreads) {
    float run = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const std::int64_t i = begin + k * kThreads + threadIdx.x;
      if (i < count) run += values[i] * values[i];
    }
    total += run;
  }
  return total;
}

__global__ void slice_squares(const UpdateSlice* slices, const UpdateSlices::Piece* pieces,
                              double* sums) {
  const UpdateSlices::Piece piece = pieces[blockIdx.x];
  const UpdateSlice slice = slices[piece.slice];
  const double sum =
      block_sum(squares_of(slice.gradient + piece.begin, min(kPiece, slice.count - piece.begin)));
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void value_squares(View<const float, 1> values, double* sums) {
  const std::int64_t begin = blockIdx.x * kPiece;
  const double sum =
      block_sum(squares_of(values.data + begin, min(kPiece, values.shape[0] - begin)));
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void add_sums(const double* sums, std::int64_t count, double* total) {
  double own = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) own += sums[i];
  const double sum = block_sum(own);
  if (threadIdx.x == 0) *total = sum;
}

__global__ void step_scale(View<const double, 1> squares, View<const double, 1> losses,
                           StepScaleOptions options, StepScale* scale) {
  double square = 0, loss = 0;
  for (std::int64_t i = 0; i < squares.shape[0]; ++i) square += squares(i);
  for (std::int64_t i = 0; i < losses.shape[0]; ++i) loss += losses(i);
  StepScale made;
  made.loss = options.loss_weight * loss;
  made.norm = sqrt(square);
  made.finite = isfinite(square) && isfinite(made.loss) ? 1 : 0;
  made.scale = options.clip > 0 && made.norm > options.clip ? options.clip / made.norm : 1;
  *scale = made;
}

__device__ void adamw_value(const AdamWCoefficients& k, float scale, float g, float& w, float& m,
                            float& v) {
  g *= scale;
  m = m * k.beta1 + g * (1.0f - k.beta1);
  v = v * k.beta2 + g * g * (1.0f - k.beta2);
  w = w - w * k.decay - m * k.step_size / (sqrtf(v * k.second_scale) + k.epsilon);
}

// Four at a time where the start allows it.
__device__ void adamw_run(const AdamWCoefficients& k, float scale, const float* gradient,
                          std::int64_t count, float* weight, float* first, float* second) {
  const bool aligned =
      ((reinterpret_cast<std::uintptr_t>(gradient) | reinterpret_cast<std::uintptr_t>(weight) |
        reinterpret_cast<std::uintptr_t>(first) | reinterpret_cast<std::uintptr_t>(second)) &
       15) == 0;
  const std::int64_t fours = aligned ? count / 4 : 0;
  for (std::int64_t i = threadIdx.x; i < fours; i += blockDim.x) {
    const float4 g = reinterpret_cast<const float4*>(gradient)[i];
    float4 w = reinterpret_cast<float4*>(weight)[i];
    float4 m = reinterpret_cast<float4*>(first)[i];
    float4 v = reinterpret_cast<float4*>(second)[i];
    adamw_value(k, scale, g.x, w.x, m.x, v.x);
    adamw_value(k, scale, g.y, w.y, m.y, v.y);
    adamw_value(k, scale, g.z, w.z, m.z, v.z);
    adamw_value(k, scale, g.w, w.w, m.w, v.w);
    reinterpret_cast<float4*>(weight)[i] = w;
    reinterpret_cast<float4*>(first)[i] = m;
    reinterpret_cast<float4*>(second)[i] = v;
  }
  for (std::int64_t i = fours * 4 + threadIdx.x; i < count; i += blockDim.x) {
    adamw_value(k, scale, gradient[i], weight[i], first[i], second[i]);
  }
}

__device__ bool may_update(const StepScale* scale) {
  return scale == nullptr || scale->finite != 0;
}
__device__ double factor_of(const StepScale* scale) {
  return scale == nullptr ? 1.0 : scale->scale;
}

__global__ void adamw_pieces(const UpdateSlice* slices, const UpdateSlices::Piece* pieces,
                             AdamWCoefficients k, const StepScale* scale) {
  if (!may_update(scale)) return;
  const UpdateSlices::Piece piece = pieces[blockIdx.x];
  const UpdateSlice slice = slices[piece.slice];
  k.decay *= static_cast<float>(slice.decay_factor);
  const auto factor = static_cast<float>(k.gradient_scale * factor_of(scale));
  adamw_run(k, factor, slice.gradient + piece.begin, min(kPiece, slice.count - piece.begin),
            slice.weight + piece.begin, slice.first_moment + piece.begin,
            slice.second_moment + piece.begin);
}

struct RowSettings {
  RowOptimiser optimiser;
  AdamWCoefficients k;
  double rate, epsilon, gradient_scale;
  float keep;
};

// A block a row.
__global__ void update_row(RowSettings s, TableRows table, View<const std::int64_t, 1> ids,
                           Rows<const float> gradient, const StepScale* scale) {
  if (!may_update(scale)) return;
  const std::int64_t id = ids(blockIdx.x);
  const std::int64_t width = table.weight.shape[1];
  if (id < 0 || id >= table.weight.shape[0]) return;
  const float* g = gradient.row(blockIdx.x);
  float* w = table.weight.data + id * width;
  const double factor = s.gradient_scale * factor_of(scale);
  if (s.optimiser == RowOptimiser::kAdamW) {
    adamw_run(s.k, static_cast<float>(factor), g, width, w, table.first_moment.data + id * width,
              table.second_moment.data + id * width);
    return;
  }
  float size = static_cast<float>(s.rate * factor);
  if (s.optimiser == RowOptimiser::kAdaGrad) {
    __shared__ float shared_size;
    const double squares = block_sum(squares_of(g, width));
    if (threadIdx.x == 0) {
      float& second = table.second_moment.data[id];
      second += static_cast<float>(factor * factor * squares / static_cast<double>(width));
      shared_size = static_cast<float>(s.rate * factor / sqrt(second + s.epsilon));
    }
    __syncthreads();
    size = shared_size;
  }
  for (std::int64_t c = threadIdx.x; c < width; c += blockDim.x) w[c] = w[c] * s.keep - g[c] * size;
}

void sum_up(Cuda cuda, View<const double, 1> sums, double* total) {
  add_sums<<<1, kThreads, 0, stream_of(cuda)>>>(sums.data, sums.shape[0], total);
  TGR_CUDA_CALL(cudaGetLastError());
}

}  // namespace

void squared_sum(Cuda cuda, const UpdateSlices& slices, double* sum) {
  WorkspaceScope scratch(cuda.workspace);
  const View<double, 1> sums = scratch.take<double>(slices.num_pieces());
  if (slices.num_pieces() > 0) {
    slice_squares<<<static_cast<unsigned>(slices.num_pieces()), kThreads, 0, stream_of(cuda)>>>(
        slices.device_slices(), slices.device_pieces(), sums.data);
  }
  sum_up(cuda, sums, sum);
}

void squared_sum(Cuda cuda, View<const float, 1> values, double* sum) {
  WorkspaceScope scratch(cuda.workspace);
  const View<double, 1> sums = scratch.take<double>((values.shape[0] + kPiece - 1) / kPiece);
  if (sums.shape[0] > 0) {
    value_squares<<<static_cast<unsigned>(sums.shape[0]), kThreads, 0, stream_of(cuda)>>>(
        values, sums.data);
  }
  sum_up(cuda, sums, sum);
}

void make_step_scale(Cuda cuda, View<const double, 1> squares, View<const double, 1> losses,
                     const StepScaleOptions& options, StepScale* scale) {
  step_scale<<<1, 1, 0, stream_of(cuda)>>>(squares, losses, options, scale);
  TGR_CUDA_CALL(cudaGetLastError());
}

void adamw(Cuda cuda, const UpdateSlices& slices, const AdamWSettings& settings,
           const StepScale* scale) {
  if (slices.num_pieces() == 0) return;
  adamw_pieces<<<static_cast<unsigned>(slices.num_pieces()), kThreads, 0, stream_of(cuda)>>>(
      slices.device_slices(), slices.device_pieces(), adamw_coefficients(settings), scale);
  TGR_CUDA_CALL(cudaGetLastError());
}

void update_rows(Cuda cuda, RowOptimiser optimiser, const TableRows& table,
                 View<const std::int64_t, 1> ids, Rows<const float> gradient,
                 const AdamWSettings& settings, const StepScale* scale) {
  if (ids.shape[0] == 0) return;
  const RowSettings row = {optimiser,
                           adamw_coefficients(settings),
                           settings.rate,
                           settings.epsilon,
                           settings.gradient_scale,
                           static_cast<float>(1 - settings.rate * settings.decay)};
  update_row<<<static_cast<unsigned>(ids.shape[0]), kThreads, 0, stream_of(cuda)>>>(
      row, table, ids, gradient, scale);
  TGR_CUDA_CALL(cudaGetLastError());
}

}  // namespace turbogr::ops::kernels
