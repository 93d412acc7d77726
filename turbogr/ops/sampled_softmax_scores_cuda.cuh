// What becomes of a tile of scores against a shared set of candidates.
#pragma once

#include <limits>

#include "turbogr/ops/sampled_softmax_cuda.cuh"

namespace turbogr::ops::kernels {

// Candidates of a set. f64 has half the room, so that the scratch is the same.
template <class T>
inline constexpr std::int64_t kSet = std::is_same_v<T, double> ? 4096 : 8192;

// Rows of scratch start at a multiple of 16 bytes.
inline std::int64_t padded(std::int64_t cols) {
  return cuda::divide_up(cols, cuda::kColumns) * cuda::kColumns;
}

// What the softmax needs to know of the set's candidates.
template <class A>
struct CandidateSet {
  std::int32_t* places;  // -1 past the last, up to a multiple of eight
  A* inverse;
  A* correction;
};

__device__ inline float exponential(float x) { return __expf(x); }
__device__ inline double exponential(double x) { return exp(x); }

// Eight values of scratch.
__device__ inline cuda::Eight<float> load_scratch(const float* p) { return cuda::load_vector(p); }
__device__ inline cuda::Eight<double> load_scratch(const double* p) {
  return cuda::load8<false>(p, cuda::kColumns);
}

// What a thread knows of a running sum of exponentials.
template <class A>
struct Running {
  A largest, sum;

  __device__ void join(A other_largest, A other_sum) {
    const A higher = max(largest, other_largest);
    if (higher == -std::numeric_limits<A>::infinity()) return;
    sum = sum * exponential(largest - higher) + other_sum * exponential(other_largest - higher);
    largest = higher;
  }
};

enum class ScoreUse : std::uint8_t {
  kSum,      // adds a token's candidates to (loss, log_sum_exp), which hold (largest, sum)
  kWeights,  // g = dloss e^(logit - log_sum_exp) / (|q| |item| temperature)
  kBoth,     // all candidates are in the tile: loss and log_sum_exp, then g
};

template <class T>
struct ScoreTile {
  using A = Accum<T>;
  const A* scores;  // [tokens, stride]
  std::int64_t stride;
  std::int64_t first;  // token of the first row
  std::int64_t tokens;
  CandidateSet<A> set;
  const std::int32_t* positive;
  const A* query_inverse;
  A scale;             // 1 / temperature
  const A* positives;  // logits; kBoth
  A* loss;             // kSum, kBoth
  A* log_sum_exp;      // read by kWeights
  const A* dloss;      // kWeights, kBoth
  T* weights;          // [tokens, stride]; columns past the last candidate become zero
};

// e^x is 2^(x log2 e).
inline constexpr double kLog2E = 1.4426950408889634;
__device__ inline float power_of_two(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
__device__ inline double power_of_two(double x) { return exp2(x); }

__device__ inline float warp_max(float value) {
  // As integers that sort like the floats: negative ones have their other bits turned.
  const int bits = __float_as_int(value);
  const int most = __reduce_max_sync(0xffffffffu, bits ^ (bits >> 31 & 0x7fffffff));
  return __int_as_float(most ^ (most >> 31 & 0x7fffffff));
}
__device__ inline double warp_max(double value) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) {
    value = max(value, __shfl_xor_sync(0xffffffffu, value, other));
  }
  return value;
}

// What a token's scores are used with.
template <class T, ScoreUse kUse>
struct ScoreToken {
  using A = Accum<T>;
  std::int32_t masked = 0;
  A factor = 0;    // 1 / (|q| temperature)
  A positive = 0;  // its logit
  A normalizer = 0;
  A dloss = 0;

  __device__ void load(const ScoreTile<T>& tile, std::int64_t row) {
    const std::int64_t token = tile.first + row;
    masked = tile.positive[token];
    factor = tile.query_inverse[token] * tile.scale;
    if constexpr (kUse == ScoreUse::kBoth) positive = tile.positives[token];
    if constexpr (kUse == ScoreUse::kWeights) normalizer = tile.log_sum_exp[token];
    if constexpr (kUse != ScoreUse::kSum) dloss = tile.dloss[token];
  }
};

// A thread keeps what there is to know of its eight candidates, and the block goes over tokens, the
// next one's scores on their way.
template <class T, ScoreUse kUse>
__global__ void __launch_bounds__(kSet<T> / cuda::kColumns) score_rows_kernel(ScoreTile<T> tile) {
  using A = Accum<T>;
  using cuda::Eight;
  using cuda::kColumns;
  constexpr A kLowest = -std::numeric_limits<A>::infinity();
  constexpr A kLog2 = static_cast<A>(kLog2E);
  __shared__ A maxima[2][32], sums[2][32];
  const std::int64_t c = std::int64_t{threadIdx.x} * kColumns;
  const bool inside = c < tile.stride;
  const unsigned warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  std::int32_t places[kColumns];
  Eight<A> inverse = {}, correction = {}, next = {};
  bool whole = true;  // all eight are there
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    places[i] = inside ? tile.set.places[c + i] : -1;
    whole = whole && places[i] >= 0;
    if (places[i] < 0) continue;
    inverse[i] = tile.set.inverse[c + i];
    correction[i] = tile.set.correction[c + i];
  }
  std::int64_t t = blockIdx.x;
  ScoreToken<T, kUse> coming;
  if (t < tile.tokens) {
    coming.load(tile, t);
    if (inside) next = load_scratch(tile.scores + t * tile.stride + c);
  }
  for (int turn = 0; t < tile.tokens; t += gridDim.x, turn ^= 1) {
    Eight<A> value = next;
    const ScoreToken<T, kUse> token = coming;
    if (t + gridDim.x < tile.tokens) {
      coming.load(tile, t + gridDim.x);
      if (inside) next = load_scratch(tile.scores + (t + gridDim.x) * tile.stride + c);
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      value[i] = value[i] * (token.factor * inverse[i]) - correction[i];
      if (places[i] == token.masked) value[i] = kLowest;
    }
    if (!whole) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        if (places[i] < 0) value[i] = kLowest;
      }
    }
    A weight = token.dloss * token.factor;
    if constexpr (kUse == ScoreUse::kWeights) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        value[i] = power_of_two((value[i] - token.normalizer) * kLog2);
      }
    } else {
      A most = value[0];
#pragma unroll
      for (int i = 1; i < kColumns; ++i) most = max(most, value[i]);
      most = warp_max(most);
      const A subtracted = most == kLowest ? A(0) : most;
      A sum = 0;
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        value[i] = power_of_two((value[i] - subtracted) * kLog2);
        sum += value[i];
      }
      sum = cuda::warp_sum(sum);
      if (lane == 0) {
        maxima[turn][warp] = most;
        sums[turn][warp] = sum;
      }
      // One barrier a token: what is written here was last read before the barrier in between.
      __syncthreads();
      A largest = lane < warps ? maxima[turn][lane] : kLowest;
      sum = lane < warps ? sums[turn][lane] : A(0);
      const A own = largest;
      largest = warp_max(largest);
      if constexpr (kUse == ScoreUse::kBoth) largest = max(largest, token.positive);
      const A highest = largest == kLowest ? A(0) : largest;
      sum = cuda::warp_sum(sum * power_of_two((own - highest) * kLog2));
      if constexpr (kUse == ScoreUse::kSum) {
        if (threadIdx.x == 0) {
          Running<A> all = {largest, sum};
          all.join(tile.loss[tile.first + t], tile.log_sum_exp[tile.first + t]);
          tile.loss[tile.first + t] = all.largest;
          tile.log_sum_exp[tile.first + t] = all.sum;
        }
        continue;
      }
      const A log_sum = log(sum + power_of_two((token.positive - largest) * kLog2));
      const A normalizer = largest + log_sum;
      if (threadIdx.x == 0) {
        tile.loss[tile.first + t] = largest - token.positive + log_sum;
        tile.log_sum_exp[tile.first + t] = normalizer;
      }
      weight *= power_of_two((most - normalizer) * kLog2);
    }
    if constexpr (kUse != ScoreUse::kSum) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) value[i] *= weight * inverse[i];
      if (inside) {
        cuda::store8<!std::is_same_v<T, double>>(tile.weights + t * tile.stride + c, kColumns,
                                                 value);
      }
    }
  }
}

template <class T, ScoreUse kUse>
void use_scores(cudaStream_t stream, const ScoreTile<T>& tile) {
  const auto threads =
      static_cast<unsigned>(cuda::divide_up(tile.stride, 32 * cuda::kColumns)) * 32;
  const std::int64_t blocks = 132 * std::max(1u, 2048 / threads / 2);
  score_rows_kernel<T, kUse>
      <<<static_cast<unsigned>(std::min(blocks, tile.tokens)), threads, 0, stream>>>(tile);
}

}  // namespace turbogr::ops::kernels
