#include <algorithm>

#include "turbogr/cuda/half.cuh"
#include "turbogr/ops/dense/sum_cuda.cuh"
#include "turbogr/ops/rows/step_scale.h"
#include "turbogr/ops/rows/update_kernels.h"

namespace turbogr::ops::kernels {
namespace {

constexpr std::int64_t kPiece = UpdateSlices::kPiece;
constexpr unsigned kRowWarps = 8;  // rows of a block of update_rows
// Of a narrow update: 256 warps with two kilobytes on their way each are enough for a link of 50
// GB/s each way, and leave all but a few multiprocessors to others. Half of them are not.
constexpr unsigned kNarrowWarps = 32;
constexpr std::int64_t kNarrowBlocks = 8;

__device__ double squares_of(const float* values, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kSumThreads) {
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return block_sum(sum);
}

__global__ void zero_slices_kernel(const UpdateSlice* slices, const UpdateSlices::Piece* pieces) {
  const UpdateSlices::Piece piece = pieces[blockIdx.x];
  const UpdateSlice slice = slices[piece.slice];
  float* values = slice.gradient + piece.begin;
  const std::int64_t count = min(kPiece, slice.count - piece.begin);
  std::int64_t done = 0;
  if (reinterpret_cast<std::uintptr_t>(values) % 16 == 0) {
    done = count / 4 * 4;
    for (std::int64_t i = std::int64_t{threadIdx.x} * 4; i < done; i += kSumThreads * 4) {
      *reinterpret_cast<float4*>(values + i) = {0, 0, 0, 0};
    }
  }
  for (std::int64_t i = done + threadIdx.x; i < count; i += kSumThreads) values[i] = 0;
}

__global__ void square_slices_kernel(const UpdateSlice* slices, const UpdateSlices::Piece* pieces,
                                     double* parts) {
  const UpdateSlices::Piece piece = pieces[blockIdx.x];
  const UpdateSlice slice = slices[piece.slice];
  const double sum =
      squares_of(slice.gradient + piece.begin, min(kPiece, slice.count - piece.begin));
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ void square_values_kernel(const float* values, std::int64_t count, double* parts) {
  const std::int64_t begin = std::int64_t{blockIdx.x} * kPiece;
  const double sum = squares_of(values + begin, min(kPiece, count - begin));
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ void step_scale_kernel(View<const double, 1> squares, View<const double, 1> losses,
                                  StepScaleOptions options, StepScale* scale) {
  *scale = step_scale(squares, losses, options);
}

__global__ void scale_value_kernel(double factor, double* value) { *value *= factor; }

// Rounding is spelled out, so that every kernel gives a row the same bits.
__device__ void adamw_one(const AdamWCoefficients& k, float g, float& w, float& m, float& v) {
  g = __fmul_rn(g, k.gradient_scale);
  m = __fmaf_rn(m, k.beta1, __fmul_rn(g, 1.0f - k.beta1));
  v = __fmaf_rn(v, k.beta2, __fmul_rn(__fmul_rn(g, g), 1.0f - k.beta2));
  const float divisor = __fadd_rn(sqrtf(__fmul_rn(v, k.second_scale)), k.epsilon);
  w = __fsub_rn(__fmaf_rn(-w, k.decay, w), __fdiv_rn(__fmul_rn(m, k.step_size), divisor));
}
__device__ float descended(float w, float keep, float g, float stride) {
  return __fmaf_rn(w, keep, -__fmul_rn(g, stride));
}

__device__ void store_vector4(float* p, const float4& x) { *reinterpret_cast<float4*>(p) = x; }
__device__ void store_vector4(bf16* p, const float4& x) {
  const auto pair = [](float low, float high) {
    return std::uint32_t{bf16(low).bits} | std::uint32_t{bf16(high).bits} << 16;
  };
  *reinterpret_cast<uint2*>(p) = {pair(x.x, x.y), pair(x.z, x.w)};
}
// A row of copies may start anywhere.
template <class T>
__device__ void store4(T* p, const float4& x) {
  if (reinterpret_cast<std::uintptr_t>(p) % (4 * sizeof(T)) == 0) {
    store_vector4(p, x);
    return;
  }
  p[0] = convert<T>(x.x);
  p[1] = convert<T>(x.y);
  p[2] = convert<T>(x.z);
  p[3] = convert<T>(x.w);
}

__device__ bool aligned(const float* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

// Weights [0, count), by `threads` threads of which this is number `thread`; copies of them go to
// `copy`, unless it is null.
template <class T>
__device__ void adamw_run(const AdamWCoefficients& k, const float* gradient, std::int64_t count,
                          float* weight, float* first, float* second, unsigned thread,
                          unsigned threads, T* copy) {
  std::int64_t done = 0;
  if (aligned(gradient) && aligned(weight) && aligned(first) && aligned(second)) {
    done = count / 4 * 4;
    for (std::int64_t i = std::int64_t{thread} * 4; i < done; i += std::int64_t{threads} * 4) {
      const float4 g = *reinterpret_cast<const float4*>(gradient + i);
      float4 w = *reinterpret_cast<const float4*>(weight + i);
      float4 m = *reinterpret_cast<const float4*>(first + i);
      float4 v = *reinterpret_cast<const float4*>(second + i);
      adamw_one(k, g.x, w.x, m.x, v.x);
      adamw_one(k, g.y, w.y, m.y, v.y);
      adamw_one(k, g.z, w.z, m.z, v.z);
      adamw_one(k, g.w, w.w, m.w, v.w);
      *reinterpret_cast<float4*>(weight + i) = w;
      *reinterpret_cast<float4*>(first + i) = m;
      *reinterpret_cast<float4*>(second + i) = v;
      if (copy != nullptr) store4(copy + i, w);
    }
  }
  for (std::int64_t i = done + thread; i < count; i += threads) {
    adamw_one(k, gradient[i], weight[i], first[i], second[i]);
    if (copy != nullptr) copy[i] = convert<T>(weight[i]);
  }
}

__global__ void adamw_kernel(const UpdateSlice* slices, const UpdateSlices::Piece* pieces,
                             AdamWCoefficients k, const StepScale* scale) {
  if (scale != nullptr) {
    if (scale->finite == 0) return;
    k.gradient_scale *= static_cast<float>(scale->scale);
  }
  const UpdateSlices::Piece piece = pieces[blockIdx.x];
  const UpdateSlice slice = slices[piece.slice];
  k.decay *= static_cast<float>(slice.decay_factor);
  adamw_run(k, slice.gradient + piece.begin, min(kPiece, slice.count - piece.begin),
            slice.weight + piece.begin, slice.first_moment + piece.begin,
            slice.second_moment + piece.begin, threadIdx.x, blockDim.x,
            slice.rounded == nullptr ? nullptr : slice.rounded + piece.begin);
}

struct RowStep {
  AdamWCoefficients adamw;
  double factor, rate, epsilon, decay;  // of AdaGrad and SGD
  bool epsilon_outside, decay_in_gradient;
};

// What a row takes of its gradient and keeps of its weights.
struct Descent {
  float keep, stride;
};

// w = w keep - g stride, or as it is; by a warp.
template <class T>
__device__ void descend(const float* g, std::int64_t width, float keep, float stride, bool updates,
                        float* w, T* copy) {
  std::int64_t done = 0;
  if (aligned(g) && aligned(w)) {
    done = width / 4 * 4;
#pragma unroll 4
    for (std::int64_t c = std::int64_t{threadIdx.x} * 4; c < done; c += 128) {
      const float4 d = *reinterpret_cast<const float4*>(g + c);
      float4 x = *reinterpret_cast<const float4*>(w + c);
      if (updates) {
        x = {descended(x.x, keep, d.x, stride), descended(x.y, keep, d.y, stride),
             descended(x.z, keep, d.z, stride), descended(x.w, keep, d.w, stride)};
        *reinterpret_cast<float4*>(w + c) = x;
      }
      if (copy != nullptr) store4(copy + c, x);
    }
  }
  for (std::int64_t c = done + threadIdx.x; c < width; c += 32) {
    if (updates) w[c] = descended(w[c], keep, g[c], stride);
    if (copy != nullptr) copy[c] = convert<T>(w[c]);
  }
}

// Of a row's scaled gradient, by a warp.
__device__ float mean_square(const float* g, std::int64_t width, double factor) {
  double squares = 0;
  for (std::int64_t c = threadIdx.x; c < width; c += 32) {
    squares += static_cast<double>(g[c]) * static_cast<double>(g[c]);
  }
  squares = cuda::warp_sum(squares);
  return static_cast<float>(factor * factor * squares / static_cast<double>(width));
}

// The same with the row's decay.
template <class Weight>
__device__ float decayed_mean_square(const float* g, const Weight* w, std::int64_t width,
                                     double factor, double decay) {
  double squares = 0;
  for (std::int64_t c = threadIdx.x; c < width; c += 32) {
    float weight;
    if constexpr (std::is_same_v<Weight, f16>) {
      weight = cuda::widened(w[c]);
    } else {
      weight = convert<float>(w[c]);
    }
    const double slope = factor * static_cast<double>(g[c]) + decay * static_cast<double>(weight);
    squares += slope * slope;
  }
  return static_cast<float>(cuda::warp_sum(squares) / static_cast<double>(width));
}

// Of AdaGrad, whose accumulator it moves on, and SGD; by a warp, which has read all of w when it
// returns.
template <class Weight>
__device__ Descent descent_of(RowOptimiser optimiser, const RowStep& step, const float* g,
                              const Weight* w, std::int64_t width, float* second_moment) {
  double divisor = 1;
  if (optimiser == RowOptimiser::kAdaGrad) {
    const float mean = step.decay_in_gradient
                           ? decayed_mean_square(g, w, width, step.factor, step.decay)
                           : mean_square(g, width, step.factor);
    const float before = *second_moment;
    __syncwarp();
    const float second = before + mean;
    if (threadIdx.x == 0) *second_moment = second;
    divisor = adagrad_divisor(second, step.epsilon, step.epsilon_outside);
  }
  const bool in_gradient = step.decay_in_gradient && optimiser == RowOptimiser::kAdaGrad;
  const double decay_rate = step.rate / (in_gradient ? divisor : 1);
  return {static_cast<float>(1 - decay_rate * step.decay),
          static_cast<float>(step.rate * step.factor / divisor)};
}

// By a warp. The table may be in host memory: a weight crosses the link once each way.
template <class T>
__device__ void update_row(RowOptimiser optimiser, const TableRows& table, const std::int64_t* ids,
                           Rows<const float> gradient, const RowStep& step, bool updates,
                           const RowCopies<T>& copies, std::int64_t i) {
  const std::int64_t id = ids[i];
  const std::int64_t width = gradient.cols;
  if (id < 0 || id >= table.weight.shape[0]) return;
  T* copy = nullptr;
  if (copies.places.data != nullptr && copies.places.data[i] >= 0) {
    copy = copies.rows.row(copies.places.data[i]);
  }
  const float* g = gradient.row(i);
  float* w = table.weight.data + id * width;
  if (!updates) {
    if (copy != nullptr) descend(g, width, 1.0f, 0.0f, false, w, copy);
    return;
  }
  if (optimiser == RowOptimiser::kAdamW) {
    adamw_run(step.adamw, g, width, w, table.first_moment.data + id * width,
              table.second_moment.data + id * width, threadIdx.x, 32, copy);
    return;
  }
  const Descent down = descent_of(optimiser, step, g, w, width, table.second_moment.data + id);
  descend(g, width, down.keep, down.stride, true, w, copy);
}

template <class T>
__global__ void __launch_bounds__(32 * kNarrowWarps)
    update_rows_kernel(RowOptimiser optimiser, TableRows table, const std::int64_t* ids,
                       Rows<const float> gradient, RowStep step, const StepScale* scale,
                       RowCopies<T> copies, const std::int32_t* which, std::int64_t count) {
  bool updates = true;
  if (scale != nullptr) {
    updates = scale->finite != 0;
    step.adamw.gradient_scale *= static_cast<float>(scale->scale);
    step.factor *= scale->scale;
  }
  for (std::int64_t k = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y; k < count;
       k += std::int64_t{gridDim.x} * blockDim.y) {
    const std::int64_t i = which == nullptr ? k : which[k];
    update_row(optimiser, table, ids, gradient, step, updates, copies, i);
  }
}

// A table in bf16 or f16, a warp a row: eight columns a thread, whose chances come from one draw.
// `weights`: those of `table` that are there.
template <class Half, bool kVector>
__global__ void __launch_bounds__(32 * kRowWarps)
    update_rounded_kernel(RowOptimiser optimiser, TableRows table, View<Half, 2> weights,
                          const std::int64_t* ids, Rows<const float> gradient, RowStep step,
                          std::uint64_t number, const StepScale* scale) {
  if (scale != nullptr) {
    if (scale->finite == 0) return;
    step.adamw.gradient_scale *= static_cast<float>(scale->scale);
    step.factor *= scale->scale;
  }
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (i >= gradient.rows) return;
  const std::int64_t id = ids[i];
  const std::int64_t width = gradient.cols;
  if (id < 0 || id >= weights.shape[0]) return;
  const float* g = gradient.row(i);
  Half* w = weights.data + id * width;
  const Descent down = descent_of(optimiser, step, g, w, width, table.second_moment.data + id);
  const std::uint64_t key = table.keys.of(id);
  for (std::int64_t c = std::int64_t{threadIdx.x} * kRoundedTogether; c < width;
       c += 32 * kRoundedTogether) {
    const std::int64_t left = width - c;
    const auto d = cuda::load8<kVector>(g + c, left);
    const auto was = cuda::load_row8<kVector, float>(w + c, left);
    const auto bits = rounding_bits(table.keys, key, number, c / kRoundedTogether);
    alignas(16) Half rounded[kRoundedTogether];
#pragma unroll
    for (int j = 0; j < kRoundedTogether; ++j) {
      float x = was[j];
      if (optimiser == RowOptimiser::kAdamW) {
        if (j < left) {
          const std::int64_t at = id * width + c + j;
          adamw_one(step.adamw, d[j], x, table.first_moment.data[at], table.second_moment.data[at]);
        }
      } else {
        x = descended(x, down.keep, d[j], down.stride);
      }
      rounded[j] = rounded_by<Half>(x, bits, j);
    }
    if (kVector && left >= kRoundedTogether) {
      *reinterpret_cast<uint4*>(w + c) = *reinterpret_cast<const uint4*>(rounded);
    } else {
      for (int j = 0; j < kRoundedTogether && j < left; ++j) w[c + j] = rounded[j];
    }
  }
}

void sum_parts(cudaStream_t stream, View<const double, 1> parts, double* sum) {
  sum_parts_kernel<<<1, kSumThreads, 0, stream>>>(parts.data, parts.shape[0], sum);
}

RowStep row_step(const AdamWSettings& settings) {
  return {adamw_coefficients(settings),
          settings.gradient_scale,
          settings.rate,
          settings.epsilon,
          settings.decay,
          settings.epsilon_outside,
          settings.decay_in_gradient};
}

}  // namespace

void zero_gradients(Cuda cuda, const UpdateSlices& slices) {
  if (slices.num_pieces() == 0) return;
  zero_slices_kernel<<<static_cast<unsigned>(slices.num_pieces()), kSumThreads, 0,
                       cuda::stream_of(cuda.stream)>>>(slices.device_slices(),
                                                       slices.device_pieces());
  cuda::check_launch("zero_gradients");
}

void squared_sum(Cuda cuda, const UpdateSlices& slices, double* sum) {
  cudaStream_t stream = cuda::stream_of(cuda.stream);
  WorkspaceScope scratch(cuda.workspace);
  const View<double, 1> parts = scratch.take<double>(slices.num_pieces());
  if (slices.num_pieces() > 0) {
    square_slices_kernel<<<static_cast<unsigned>(slices.num_pieces()), kSumThreads, 0, stream>>>(
        slices.device_slices(), slices.device_pieces(), parts.data);
  }
  sum_parts(stream, parts, sum);
  cuda::check_launch("squared_sum");
}

void squared_sum(Cuda cuda, View<const float, 1> values, double* sum) {
  cudaStream_t stream = cuda::stream_of(cuda.stream);
  WorkspaceScope scratch(cuda.workspace);
  const std::int64_t count = values.shape[0];
  const View<double, 1> parts = scratch.take<double>(cuda::divide_up(count, kPiece));
  if (count > 0) {
    square_values_kernel<<<static_cast<unsigned>(parts.shape[0]), kSumThreads, 0, stream>>>(
        values.data, count, parts.data);
  }
  sum_parts(stream, parts, sum);
  cuda::check_launch("squared_sum");
}

void make_step_scale(Cuda cuda, View<const double, 1> squares, View<const double, 1> losses,
                     const StepScaleOptions& options, StepScale* scale) {
  step_scale_kernel<<<1, 1, 0, cuda::stream_of(cuda.stream)>>>(squares, losses, options, scale);
  cuda::check_launch("make_step_scale");
}

void scale_value(Cuda cuda, double factor, double* value) {
  scale_value_kernel<<<1, 1, 0, cuda::stream_of(cuda.stream)>>>(factor, value);
  cuda::check_launch("scale_value");
}

void adamw(Cuda cuda, const UpdateSlices& slices, const AdamWSettings& settings,
           const StepScale* scale) {
  if (slices.num_pieces() == 0) return;
  adamw_kernel<<<static_cast<unsigned>(slices.num_pieces()), 256, 0,
                 cuda::stream_of(cuda.stream)>>>(slices.device_slices(), slices.device_pieces(),
                                                 adamw_coefficients(settings), scale);
  cuda::check_launch("adamw");
}

template <class T>
void update_rows(Cuda cuda, RowOptimiser optimiser, const TableRows& table,
                 View<const std::int64_t, 1> ids, Rows<const float> gradient,
                 const AdamWSettings& settings, const StepScale* scale, const RowCopies<T>& copies,
                 const RowPart& part) {
  const std::int64_t count = part.which.data == nullptr ? gradient.rows : part.which.shape[0];
  if (count == 0 || gradient.cols == 0) return;
  const RowStep step = row_step(settings);
  const dim3 block(32, part.narrow ? kNarrowWarps : kRowWarps);
  const std::int64_t blocks = cuda::divide_up(count, block.y);
  update_rows_kernel<T>
      <<<static_cast<unsigned>(part.narrow ? std::min(blocks, kNarrowBlocks) : blocks), block, 0,
         cuda::stream_of(cuda.stream)>>>(optimiser, table, ids.data, gradient, step, scale, copies,
                                         part.which.data, count);
  cuda::check_launch("update_rows");
}

void update_rows(Cuda cuda, RowOptimiser optimiser, const TableRows& table,
                 View<const std::int64_t, 1> ids, Rows<const float> gradient,
                 const AdamWSettings& settings, const StepScale* scale) {
  if (table.in_f32()) {
    update_rows<float>(cuda, optimiser, table, ids, gradient, settings, scale, {}, {});
    return;
  }
  if (gradient.rows == 0 || gradient.cols == 0) return;
  const RowStep step = row_step(settings);
  const dim3 block(32, kRowWarps);
  const auto blocks = static_cast<unsigned>(cuda::divide_up(gradient.rows, block.y));
  table.with_rounded([&]<class Half>(View<Half, 2> weights) {
    const bool vectors = cuda::vectorable(gradient) && cuda::vectorable(Rows<Half>(weights));
    cuda::choose_vector<Half>(vectors, [&](auto vector) {
      update_rounded_kernel<Half, vector.value><<<blocks, block, 0, cuda::stream_of(cuda.stream)>>>(
          optimiser, table, weights, ids.data, gradient, step,
          static_cast<std::uint64_t>(settings.step), scale);
    });
  });
  cuda::check_launch("update_rows");
}

template void update_rows<float>(Cuda, RowOptimiser, const TableRows&, View<const std::int64_t, 1>,
                                 Rows<const float>, const AdamWSettings&, const StepScale*,
                                 const RowCopies<float>&, const RowPart&);
template void update_rows<bf16>(Cuda, RowOptimiser, const TableRows&, View<const std::int64_t, 1>,
                                Rows<const float>, const AdamWSettings&, const StepScale*,
                                const RowCopies<bf16>&, const RowPart&);

}  // namespace turbogr::ops::kernels
