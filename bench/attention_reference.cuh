// HSTU attention, forward and backward, one token and head at a time in double: what the fast
// kernels are measured against. With kPlain, weights, their gradients and results are rounded to
// bf16 as a straightforward bf16 implementation would round them; its error is the yardstick.
#pragma once

#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>

#include "turbogr/ops/attention/hopper/attention.h"

namespace turbogr::bench {

inline constexpr int kReferenceThreads = 128;

struct ReferenceArgs {
  cuda::AttentionParams p;
  const int* token_sequence;  // [N]
  int num_samples;            // of (token, head) pairs: token = sample * step / heads
  std::int64_t step;
  // [samples, width]
  double *out, *dq, *dk, *dv;
  double *dposition, *dtime;  // null unless the samples are all there are
};

__device__ inline double round_if(double x, bool round) {
  return round ? static_cast<double>(__bfloat162float(__float2bfloat16(static_cast<float>(x)))) : x;
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
__global__ void reference_kernel(ReferenceArgs args) {
  const cuda::AttentionParams& p = args.p;
  __shared__ double weight[kReferenceThreads];
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
  const int thread = static_cast<int>(threadIdx.x);
  // Two columns a thread at most: widths up to 256.
  double first[2] = {};
  double second[2] = {};
  for (std::int64_t at = begin; at < end; at += kReferenceThreads) {
    const std::int64_t other = at + thread;
    double a = 0;
    double g = 0;
    if (other < end) {
      const std::int64_t i = kQuery ? token : other;
      const std::int64_t j = kQuery ? other : token;
      const auto* q = row(p.q, p.q_stride, p.query_width, i);
      const auto* k = row(p.k, p.k_stride, p.query_width, j);
      const auto* v = row(p.v, p.v_stride, p.value_width, j);
      double x = 0;
      for (int c = 0; c < p.query_width; ++c) {
        x += static_cast<double>(__bfloat162float(q[c])) *
             static_cast<double>(__bfloat162float(k[c]));
      }
      x *= p.alpha;
      int bucket = 0;
      if (p.position != nullptr)
        x += static_cast<double>(p.position[p.position_length - 1 + j - i]);
      if (p.time != nullptr) {
        bucket = reference_bucket(p.query_times[i], p.key_times[j]);
        x += static_cast<double>(p.time[bucket]);
      }
      const double s = 1 / (1 + exp(-x));
      a = round_if(x * s, kPlain);
      if (p.dout != nullptr) {
        const auto* dout = row(p.dout, p.dout_stride, p.value_width, i);
        double dot = 0;
        for (int c = 0; c < p.value_width; ++c) {
          dot += static_cast<double>(__bfloat162float(dout[c])) *
                 static_cast<double>(__bfloat162float(v[c]));
        }
        g = round_if(dot * s * (1 + x * (1 - s)), kPlain);
        if (kQuery && args.dposition != nullptr && p.position != nullptr) {
          atomicAdd(args.dposition + p.position_length - 1 + j - i, g / p.norm_length);
        }
        if (kQuery && args.dtime != nullptr && p.time != nullptr) {
          atomicAdd(args.dtime + bucket, g / p.norm_length);
        }
      }
    }
    weight[thread] = a;
    gradient[thread] = g;
    __syncthreads();
    const int count = static_cast<int>(end - at < kReferenceThreads ? end - at : kReferenceThreads);
    for (int t = 0; t < count; ++t) {
      const auto* x = kQuery ? row(p.v, p.v_stride, p.value_width, at + t)
                             : row(p.dout, p.dout_stride, p.value_width, at + t);
      const auto* y = kQuery ? row(p.k, p.k_stride, p.query_width, at + t)
                             : row(p.q, p.q_stride, p.query_width, at + t);
      for (int part = 0; part < 2; ++part) {
        const int column = thread + part * kReferenceThreads;
        if (column < p.value_width) {
          first[part] += weight[t] * static_cast<double>(__bfloat162float(x[column]));
        }
        if (column < p.query_width) {
          second[part] += gradient[t] * static_cast<double>(__bfloat162float(y[column]));
        }
      }
    }
    __syncthreads();
  }
  double* values = kQuery ? args.out : args.dv;
  double* grads = kQuery ? args.dq : args.dk;
  for (int part = 0; part < 2; ++part) {
    const int column = thread + part * kReferenceThreads;
    const auto sample = static_cast<std::int64_t>(blockIdx.x);
    if (column < p.value_width) {
      values[sample * p.value_width + column] = round_if(first[part] / p.norm_length, kPlain);
    }
    if (column < p.query_width) {
      grads[sample * p.query_width + column] =
          round_if(second[part] * p.alpha / p.norm_length, kPlain);
    }
  }
}

}  // namespace turbogr::bench
