// What becomes of a tile of scores against a shared set of candidates.
#pragma once

#include <limits>

#include "turbogr/ops/softmax/sampled_softmax_cuda.cuh"

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
  std::int64_t count;  // candidates, up to the stride
  std::int64_t first;  // token of the first row
  std::int64_t tokens;
  CandidateSet<A> set;
  bool corrects;  // else the set's corrections are all zero
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

// Four values of neighbouring columns.
template <class A>
struct alignas(16) Four {
  A v[4];
};
__device__ inline void store_four(bf16* p, const Four<float>& x) {
  const __nv_bfloat162 low = __floats2bfloat162_rn(x.v[0], x.v[1]);
  const __nv_bfloat162 high = __floats2bfloat162_rn(x.v[2], x.v[3]);
  *reinterpret_cast<uint2*>(p) = {*reinterpret_cast<const std::uint32_t*>(&low),
                                  *reinterpret_cast<const std::uint32_t*>(&high)};
}
template <class A>
__device__ void store_four(A* p, const Four<A>& x) {
  *reinterpret_cast<Four<A>*>(p) = x;
}

__device__ inline float quotient(float x, float y) { return __fdividef(x, y); }
__device__ inline double quotient(double x, double y) { return x / y; }

inline constexpr int kFours = 4;  // of a thread, a block's width apart
// Rows of scores on their way: with corrections there is room for one a block, two blocks on a
// multiprocessor.
template <bool kCorrected>
inline constexpr int kRing = kCorrected ? 1 : 2;

template <class T>
inline constexpr unsigned kScoreThreads = kSet<T> / (4 * kFours);

// Into shared memory, by the thread that reads it there.
template <class A>
__device__ void ask_four(A* to, const A* from) {
#pragma unroll
  for (int part = 0; part < static_cast<int>(sizeof(Four<A>) / 16); ++part) {
    constexpr int kPart = 16 / sizeof(A);
    const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(to + part * kPart));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from + part * kPart)
                 : "memory");
  }
}
__device__ inline void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kOpen>
__device__ void await_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

// The block keeps what there is to know of the candidates in registers and shared memory and goes
// over tokens, the next ones' scores on their way. Of shared memory a thread reads only what it
// asked for itself. kCorrected: there are corrections.
template <class T, ScoreUse kUse, bool kCorrected>
__global__ void __launch_bounds__(kScoreThreads<T>, 2) score_rows_kernel(ScoreTile<T> tile) {
  using A = Accum<T>;
  constexpr A kLowest = -std::numeric_limits<A>::infinity();
  constexpr A kLog2 = static_cast<A>(kLog2E);
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ A maxima[2][32], sums[2][32];
  constexpr int kSlots = kRing<kCorrected>;
  const auto stride = static_cast<int>(tile.stride), count = static_cast<int>(tile.count);
  A* ring = reinterpret_cast<A*>(memory);  // [kSlots, stride]
  A* correction = ring + kSlots * stride;  // [stride] with corrections
  auto* places = reinterpret_cast<std::int32_t*>(correction + (kCorrected ? stride : 0));
  const unsigned warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto column = [&](int f) {
    return (f * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * 4;
  };
  Four<A> scale[kFours];
#pragma unroll
  for (int f = 0; f < kFours; ++f) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int c = column(f) + i;
      scale[f].v[i] = c < count ? tile.set.inverse[c] : A(0);
      if (c >= stride) continue;
      places[c] = c < count ? tile.set.places[c] : -1;
      if constexpr (kCorrected) correction[c] = c < count ? tile.set.correction[c] : A(0);
    }
  }
  const auto ask = [&](std::int64_t row, int slot) {
    if (row < tile.tokens) {
#pragma unroll
      for (int f = 0; f < kFours; ++f) {
        if (column(f) >= stride) continue;
        ask_four(ring + slot * stride + column(f), tile.scores + row * tile.stride + column(f));
      }
    }
    close_group();
  };
  const std::int64_t step = gridDim.x;
  std::int64_t t = blockIdx.x;
#pragma unroll
  for (int ahead = 0; ahead < kSlots; ++ahead) ask(t + ahead * step, ahead);
  ScoreToken<T, kUse> coming;
  if (t < tile.tokens) coming.load(tile, t);
  int slot = 0;
  for (int turn = 0; t < tile.tokens; t += step, turn ^= 1) {
    const ScoreToken<T, kUse> token = coming;
    if (t + step < tile.tokens) coming.load(tile, t + step);
    await_groups<kSlots - 1>();
    // Values are logits, or without corrections logits over the token's factor, which is positive.
    const A unit = kCorrected ? A(1) : token.factor;
    Four<A> value[kFours];
#pragma unroll
    for (int f = 0; f < kFours; ++f) {
      const int c = column(f);
      if (c >= stride) {
#pragma unroll
        for (int i = 0; i < 4; ++i) value[f].v[i] = kLowest;
        continue;
      }
      value[f] = *reinterpret_cast<const Four<A>*>(ring + slot * stride + c);
      const auto place = *reinterpret_cast<const Four<std::int32_t>*>(places + c);
      Four<A> minus;
      if constexpr (kCorrected) minus = *reinterpret_cast<const Four<A>*>(correction + c);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (kCorrected) {
          value[f].v[i] = value[f].v[i] * (token.factor * scale[f].v[i]) - minus.v[i];
        } else {
          value[f].v[i] *= scale[f].v[i];
        }
        if (place.v[i] == token.masked) value[f].v[i] = kLowest;
      }
      if (c + 4 > count) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (c + i >= count) value[f].v[i] = kLowest;
        }
      }
    }
    // The slot has been read: its values were used above.
    ask(t + kSlots * step, slot);
    slot = (slot + 1) % kSlots;
    A weight = token.dloss * token.factor;
    A subtracted = token.normalizer;
    A most = kLowest;
    if constexpr (kUse != ScoreUse::kWeights) {
#pragma unroll
      for (int f = 0; f < kFours; ++f) {
#pragma unroll
        for (int i = 0; i < 4; ++i) most = max(most, value[f].v[i]);
      }
      most = warp_max(most) * unit;
      subtracted = most == kLowest ? A(0) : most;
    }
    A sum = 0;
#pragma unroll
    for (int f = 0; f < kFours; ++f) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        value[f].v[i] = power_of_two((value[f].v[i] * unit - subtracted) * kLog2);
        sum += value[f].v[i];
      }
    }
    if constexpr (kUse != ScoreUse::kWeights) {
      sum = cuda::warp_sum(sum);
      if (lane == 0) {
        maxima[turn][warp] = most;
        sums[turn][warp] = sum;
      }
      // One barrier a token: what is written here was last read before the barrier in between.
      __syncthreads();
      const A own = lane < warps ? maxima[turn][lane] : kLowest;
      sum = lane < warps ? sums[turn][lane] : A(0);
      A largest = warp_max(own);
      if constexpr (kUse == ScoreUse::kBoth) largest = max(largest, token.positive);
      const A highest = largest == kLowest ? A(0) : largest;
      sum = cuda::warp_sum(sum * power_of_two((own - highest) * kLog2));
      A* loss = tile.loss + tile.first + t;
      A* log_sum_exp = tile.log_sum_exp + tile.first + t;
      if constexpr (kUse == ScoreUse::kSum) {
        if (threadIdx.x == 0) {
          Running<A> all = {largest, sum};
          all.join(*loss, *log_sum_exp);
          *loss = all.largest;
          *log_sum_exp = all.sum;
        }
      } else {
        sum += power_of_two((token.positive - largest) * kLog2);
        if (threadIdx.x == 0) {
          const A log_sum = log(sum);
          *loss = largest - token.positive + log_sum;
          *log_sum_exp = largest + log_sum;
        }
        weight *= quotient(power_of_two((most - largest) * kLog2), sum);
      }
    }
    if constexpr (kUse != ScoreUse::kSum) {
#pragma unroll
      for (int f = 0; f < kFours; ++f) {
        const int c = column(f);
        if (c >= stride) continue;
#pragma unroll
        for (int i = 0; i < 4; ++i) value[f].v[i] *= weight * scale[f].v[i];
        store_four(tile.weights + t * tile.stride + c, value[f]);
      }
    }
  }
}

template <class T, ScoreUse kUse, bool kCorrected>
void use_scores(cudaStream_t stream, const ScoreTile<T>& tile) {
  const auto threads = static_cast<unsigned>(cuda::divide_up(tile.stride, 32 * 4 * kFours)) * 32;
  const std::int64_t blocks = 132 * std::min(16u, std::max(2u, 1024 / threads));
  const auto bytes =
      static_cast<int>(tile.stride) *
      static_cast<int>((kRing<kCorrected> + (kCorrected ? 1 : 0)) * sizeof(Accum<T>) +
                       sizeof(std::int32_t));
  const auto kernel = score_rows_kernel<T, kUse, kCorrected>;
  TGR_CUDA_CALL(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  kernel<<<static_cast<unsigned>(std::min(blocks, tile.tokens)), threads,
           static_cast<std::size_t>(bytes), stream>>>(tile);
}
template <class T, ScoreUse kUse>
void use_scores(cudaStream_t stream, const ScoreTile<T>& tile) {
  if (tile.corrects) {
    use_scores<T, kUse, true>(stream, tile);
  } else {
    use_scores<T, kUse, false>(stream, tile);
  }
}

}  // namespace turbogr::ops::kernels
