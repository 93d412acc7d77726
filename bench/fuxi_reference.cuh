// FuXi attention, forward and backward, one token and head at a time in double: what the fast
// kernels are measured against. With kPlain, weights, their gradients and results are rounded to
// bf16 as a straightforward bf16 implementation would round them; its error is the yardstick.
#pragma once

#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>

#include "turbogr/ops/attention/hopper/fuxi.h"

namespace turbogr::bench {

inline constexpr int kReferenceThreads = 128;

struct FuxiReferenceArgs {
  cuda::FuxiParams p;
  const int* token_sequence;  // [N]
  std::int64_t step;          // sample s is (token, head) pair s * step
  bool backward;
  // [samples, width], out [samples, 3 * width]
  double *out, *dq, *dk, *dv;
  double *dposition, *dtime;  // null unless the samples are all there are
};

__device__ inline double round_if(double x, bool round) {
  return round ? static_cast<double>(__bfloat162float(__float2bfloat16(static_cast<float>(x)))) : x;
}

__device__ inline double at_double(const __nv_bfloat16* row, int column) {
  return static_cast<double>(__bfloat162float(row[column]));
}

__device__ inline double dot(const __nv_bfloat16* a, const __nv_bfloat16* b, int width) {
  double sum = 0;
  for (int c = 0; c < width; ++c) sum += at_double(a, c) * at_double(b, c);
  return sum;
}

__device__ inline int reference_bucket(std::int64_t query_time, std::int64_t key_time) {
  const std::uint64_t gap =
      query_time > key_time
          ? static_cast<std::uint64_t>(query_time) - static_cast<std::uint64_t>(key_time)
          : static_cast<std::uint64_t>(key_time) - static_cast<std::uint64_t>(query_time);
  const double bucket = floor(log(fmax(1.0, static_cast<double>(gap))) / 0.301);
  return static_cast<int>(fmin(fmax(bucket, 0.0), 128.0));
}

// kQuery: the token is a query (out, dq, table gradients); else a key (dk, dv).
template <bool kPlain, bool kQuery>
__global__ void fuxi_reference_kernel(FuxiReferenceArgs args) {
  const cuda::FuxiParams& p = args.p;
  __shared__ double weight[3][kReferenceThreads];
  __shared__ double gradient[kReferenceThreads];
  const std::int64_t pair = blockIdx.x * args.step;
  const std::int64_t token = pair / p.heads;
  const int head = static_cast<int>(pair % p.heads);
  const int sequence = args.token_sequence[token];
  const std::int64_t begin = kQuery ? p.offsets[sequence] : token;
  const std::int64_t end = kQuery ? token + 1 : p.offsets[sequence + 1];
  const auto row = [&](const void* data, std::int64_t stride, int width, std::int64_t t) {
    return static_cast<const __nv_bfloat16*>(data) + t * stride + head * width;
  };
  const int width = p.value_width;
  const int thread = static_cast<int>(threadIdx.x);
  // Two columns a thread at most: widths up to 256.
  double values[3][2] = {};
  double scores[2] = {};
  for (std::int64_t first = begin; first < end; first += kReferenceThreads) {
    const std::int64_t other = first + thread;
    double a[3] = {};
    double g = 0;
    if (other < end) {
      const std::int64_t i = kQuery ? token : other;
      const std::int64_t j = kQuery ? other : token;
      const auto* v = row(p.v, p.v_stride, width, j);
      const double x = p.alpha * dot(row(p.q, p.q_stride, p.query_width, i),
                                     row(p.k, p.k_stride, p.query_width, j), p.query_width);
      const double s = 1 / (1 + exp(-x));
      const std::int64_t offset = p.position_length - 1 + j - i;
      const int bucket = p.time != nullptr ? reference_bucket(p.query_times[i], p.key_times[j]) : 0;
      if (p.position != nullptr) a[0] = round_if(static_cast<double>(p.position[offset]), kPlain);
      if (p.time != nullptr) a[1] = round_if(static_cast<double>(p.time[bucket]), kPlain);
      a[2] = round_if(x * s, kPlain) / p.norm_length;
      if (args.backward) {
        const auto* dout = row(p.dout, p.dout_stride, 3 * width, i);
        g = round_if(dot(dout + 2 * width, v, width) * s * (1 + x * (1 - s)), kPlain);
        if (kQuery && args.dposition != nullptr && p.position != nullptr) {
          atomicAdd(args.dposition + offset, round_if(dot(dout, v, width), kPlain));
        }
        if (kQuery && args.dtime != nullptr && p.time != nullptr) {
          atomicAdd(args.dtime + bucket, round_if(dot(dout + width, v, width), kPlain));
        }
      }
    }
    for (int map = 0; map < 3; ++map) weight[map][thread] = a[map];
    gradient[thread] = g;
    __syncthreads();
    const int count =
        static_cast<int>(end - first < kReferenceThreads ? end - first : kReferenceThreads);
    for (int t = 0; t < count; ++t) {
      const auto* y = kQuery ? row(p.k, p.k_stride, p.query_width, first + t)
                             : row(p.q, p.q_stride, p.query_width, first + t);
      for (int part = 0; part < 2; ++part) {
        const int column = thread + part * kReferenceThreads;
        if (column < width) {
          for (int map = 0; map < 3; ++map) {
            const auto* x = kQuery ? row(p.v, p.v_stride, width, first + t)
                                   : row(p.dout, p.dout_stride, 3 * width, first + t) + map * width;
            values[map][part] += weight[map][t] * at_double(x, column);
          }
        }
        if (column < p.query_width) scores[part] += gradient[t] * at_double(y, column);
      }
    }
    __syncthreads();
  }
  double* grads = kQuery ? args.dq : args.dk;
  const auto sample = static_cast<std::int64_t>(blockIdx.x);
  for (int part = 0; part < 2; ++part) {
    const int column = thread + part * kReferenceThreads;
    if (column < width && kQuery) {
      for (int map = 0; map < 3; ++map) {
        args.out[(sample * 3 + map) * width + column] = round_if(values[map][part], kPlain);
      }
    }
    if (column < width && !kQuery) {
      args.dv[sample * width + column] =
          round_if(values[0][part] + values[1][part] + values[2][part], kPlain);
    }
    if (column < p.query_width && args.backward) {
      grads[sample * p.query_width + column] =
          round_if(scores[part] * p.alpha / p.norm_length, kPlain);
    }
  }
}

}  // namespace turbogr::bench
