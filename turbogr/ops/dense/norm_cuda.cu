// One pass over the rows: a team keeps its row in registers, a block walks over many rows and keeps
// their sums for the parameters' gradients.
#include "turbogr/ops/dense/column_sums_cuda.cuh"
#include "turbogr/ops/dense/norm_cuda.cuh"

namespace turbogr::ops::kernels {
namespace {

using cuda::Eight;
using cuda::kColumns;

template <class A>
__device__ Eight<A> load_parameter(const A* p, std::int64_t column, std::int64_t cols, A missing) {
  Eight<A> out;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    out[i] = p == nullptr || column + i >= cols ? missing : p[column + i];
  }
  return out;
}

// [gate | something | gate * norm(x)]
TGR_HD constexpr bool is_concat(NormOutput output) {
  return output == NormOutput::kConcat || output == NormOutput::kConcatInput;
}

// kAffine: weight and bias may be there.
template <class T, NormOutput kOutput, bool kAffine, bool kVector>
__global__ void __launch_bounds__(cuda::kMaxTeam) norm_kernel(NormArgs<T> args) {
  using A = Accum<T>;
  __shared__ A shared[32];
  const std::int64_t cols = args.x.cols;
  const std::int64_t c = std::int64_t{threadIdx.x} * kColumns;
  const std::int64_t left = cols - c;
  Eight<A> w = {}, b = {};
  if constexpr (kAffine) {
    w = load_parameter(args.weight, c, cols, A(1));
    b = load_parameter(args.bias, c, cols, A(0));
  }
  for (std::int64_t base = std::int64_t{blockIdx.x} * blockDim.y; base < args.x.rows;
       base += std::int64_t{gridDim.x} * blockDim.y) {
    const std::int64_t r = base + threadIdx.y;
    const bool active = r < args.x.rows && left > 0;
    Eight<A> x = {}, gate = {};
    if (active) {
      x = cuda::load8<kVector>(args.x.row(r) + c, left);
      if constexpr (has_gate(kOutput)) {
        gate = cuda::load8<kVector>(args.gate.row(r) + c, left);
        if (args.silu_gate) {
#pragma unroll
          for (int i = 0; i < kColumns; ++i) gate[i] *= cuda::sigmoid(gate[i]);
        }
      }
    }
    [[maybe_unused]] const Eight<A> given = x;
    A mean = 0;
    if (args.layer) {
      A sum[1] = {0};
#pragma unroll
      for (int i = 0; i < kColumns; ++i) sum[0] += x[i];
      cuda::team_sum(sum, shared);
      mean = sum[0] / static_cast<A>(cols);
    }
    A squares[1] = {0};
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      x[i] -= mean;
      if (i < left) squares[0] += x[i] * x[i];
    }
    cuda::team_sum(squares, shared);
    const A rstd = A(1) / sqrt(squares[0] / static_cast<A>(cols) + args.eps);
    if (r < args.x.rows && threadIdx.x == 0) {
      if (args.layer) args.mean[r] = mean;
      args.rstd[r] = rstd;
    }
    if (!active) continue;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      x[i] *= rstd;
      if constexpr (kAffine) x[i] = x[i] * w[i] + b[i];
    }
    T* y = args.y.row(r) + c;
    if constexpr (kOutput == NormOutput::kSwish) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) x[i] = given[i] * cuda::sigmoid(x[i]);
      cuda::store8<kVector>(y, left, x);
      continue;
    }
    const bool drops = has_gate(kOutput) && args.draw.threshold != 0;
    const DropoutRow drop = args.draw.row(drops ? r : 0);
    if constexpr (is_concat(kOutput)) {
      Eight<A> first = gate, second = kOutput == NormOutput::kConcat ? x : given;
      multiply(x, gate);
      if (drops) {
        multiply(first, dropout_factors<kVector, A>(drop, c));
        multiply(second, dropout_factors<kVector, A>(drop, cols + c));
        multiply(x, dropout_factors<kVector, A>(drop, 2 * cols + c));
      }
      cuda::store8<kVector>(y, left, first);
      cuda::store8<kVector>(y + cols, left, second);
      cuda::store8<kVector>(y + 2 * cols, left, x);
    } else {
      if constexpr (kOutput == NormOutput::kGated) {
        multiply(x, gate);
        if (drops) multiply(x, dropout_factors<kVector, A>(drop, c));
      }
      cuda::store8<kVector>(y, left, x);
    }
  }
}

// With hat = (x - mean) rstd, a = hat w + b and d = dL/da: dx = rstd (d w - mean(d w) - hat mean(d
// w hat)), without the middle term for RMSNorm, and what reaches x past the norm.
template <class T, NormOutput kOutput, bool kAffine, bool kVector>
__global__ void __launch_bounds__(cuda::kMaxTeam) norm_backward_kernel(NormArgs<T> args) {
  using A = Accum<T>;
  __shared__ A shared[64];
  const std::int64_t cols = args.x.cols;
  const std::int64_t c = std::int64_t{threadIdx.x} * kColumns;
  const std::int64_t left = cols - c;
  Eight<A> w = {}, b = {}, dweight = {}, dbias = {};
  if constexpr (kAffine) {
    w = load_parameter(args.weight, c, cols, A(1));
    b = load_parameter(args.bias, c, cols, A(0));
  }
  for (std::int64_t base = std::int64_t{blockIdx.x} * blockDim.y; base < args.x.rows;
       base += std::int64_t{gridDim.x} * blockDim.y) {
    const std::int64_t r = base + threadIdx.y;
    const bool active = r < args.x.rows && left > 0;
    Eight<A> hat = {}, d = {}, past = {};
    A rstd = 0;
    if (active) {
      const T* dy = args.dy.row(r) + c;
      hat = cuda::load8<kVector>(args.x.row(r) + c, left);
      d = cuda::load8<kVector>(dy, left);
      Eight<A> gate = {}, second = {}, both = {};
      if constexpr (has_gate(kOutput)) {
        gate = cuda::load8<kVector>(args.gate.row(r) + c, left);
      } else if (args.residual.data != nullptr) {
        past = cuda::load8<kVector>(args.residual.row(r) + c, left);
      }
      if constexpr (is_concat(kOutput)) {
        second = cuda::load8<kVector>(dy + cols, left);
        both = cuda::load8<kVector>(dy + 2 * cols, left);
      }
      const A mean = args.layer ? args.mean[r] : A(0);
      rstd = args.rstd[r];
      const bool drops = has_gate(kOutput) && args.draw.threshold != 0;
      const DropoutRow drop = args.draw.row(drops ? r : 0);
      if (drops) {
        multiply(d, dropout_factors<kVector, A>(drop, c));
        if constexpr (is_concat(kOutput)) {
          multiply(second, dropout_factors<kVector, A>(drop, cols + c));
          multiply(both, dropout_factors<kVector, A>(drop, 2 * cols + c));
        }
      }
      Eight<A> dgate = {}, slope;
#pragma unroll
      for (int i = 0; i < kColumns; ++i) slope[i] = 1;
      if (has_gate(kOutput) && args.silu_gate) {
#pragma unroll
        for (int i = 0; i < kColumns; ++i) {
          const A s = cuda::sigmoid(gate[i]);
          slope[i] = s * (1 + gate[i] * (1 - s));
          gate[i] *= s;
        }
      }
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        [[maybe_unused]] const A given = hat[i];
        hat[i] = i < left ? (given - mean) * rstd : A(0);
        A a = hat[i];
        if constexpr (kAffine) a = hat[i] * w[i] + b[i];
        if constexpr (kOutput == NormOutput::kGated) {
          dgate[i] = d[i] * a * slope[i];
          d[i] *= gate[i];
        } else if constexpr (is_concat(kOutput)) {
          dgate[i] = (d[i] + both[i] * a) * slope[i];
          d[i] = both[i] * gate[i];
          (kOutput == NormOutput::kConcat ? d[i] : past[i]) += second[i];
        } else if constexpr (kOutput == NormOutput::kSwish) {
          const A s = cuda::sigmoid(a);
          past[i] = d[i] * s;
          d[i] *= given * s * (1 - s);
        }
        if constexpr (kAffine) {
          dweight[i] += d[i] * hat[i];
          dbias[i] += d[i];
          d[i] *= w[i];
        }
      }
      if constexpr (has_gate(kOutput)) {
        cuda::store8<kVector>(args.dgate.row(r) + c, left, dgate);
      }
    }
    A means[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      means[0] += d[i];
      means[1] += d[i] * hat[i];
    }
    cuda::team_sum(means, shared);
    if (!active) continue;
    const A mean_slope = args.layer ? means[0] / static_cast<A>(cols) : A(0);
    const A mean_along = means[1] / static_cast<A>(cols);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      d[i] = rstd * (d[i] - mean_slope - hat[i] * mean_along) + past[i];
    }
    cuda::store8<kVector>(args.dx.row(r) + c, left, d);
  }
  if constexpr (!kAffine) return;
  if (args.dweight_parts == nullptr && args.dbias_parts == nullptr) return;
  // Rows of the block one after another: the threads of one column add in order.
  for (unsigned y = 0; y < blockDim.y; ++y) {
    if (threadIdx.y == y && left > 0) {
      const std::int64_t at = std::int64_t{blockIdx.x} * cols + c;
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        if (i >= left) continue;
        if (args.dweight_parts != nullptr) {
          A& sum = args.dweight_parts[at + i];
          sum = y == 0 ? dweight[i] : sum + dweight[i];
        }
        if (args.dbias_parts != nullptr) {
          A& sum = args.dbias_parts[at + i];
          sum = y == 0 ? dbias[i] : sum + dbias[i];
        }
      }
    }
    __syncthreads();
  }
}

template <class T>
NormArgs<T> common_args(Rows<const T> x, Rows<const T> gate, const GatedNormOptions<T>& options) {
  return {.x = x,
          .gate = gate,
          .weight = options.norm.weight.data,
          .bias = options.norm.bias.data,
          .layer = options.norm.kind == NormKind::kLayer,
          .silu_gate = options.silu_gate,
          .eps = static_cast<Accum<T>>(options.norm.eps),
          .draw = DropoutDraw(options.dropout)};
}

// Calls body with the output, affine and vector choices as constants. Unaligned rows take the
// general kernel, to keep their number small.
template <class T, class Body>
void choose_kernel(NormOutput output, bool affine, bool vector, Body&& body) {
  const auto with_output = [&](auto constant) {
    cuda::choose_vector<T>(vector, [&](auto vectors) {
      // Ranking models' norms all have weights.
      constexpr bool kRanking =
          constant.value == NormOutput::kConcatInput || constant.value == NormOutput::kSwish;
      if constexpr (vectors.value && !kRanking) {
        if (!affine) return body(constant, std::false_type{}, vectors);
      }
      body(constant, std::true_type{}, vectors);
    });
  };
  if (output == NormOutput::kPlain) {
    with_output(std::integral_constant<NormOutput, NormOutput::kPlain>{});
  } else if (output == NormOutput::kGated) {
    with_output(std::integral_constant<NormOutput, NormOutput::kGated>{});
  } else if (output == NormOutput::kConcat) {
    with_output(std::integral_constant<NormOutput, NormOutput::kConcat>{});
  } else if (output == NormOutput::kConcatInput) {
    with_output(std::integral_constant<NormOutput, NormOutput::kConcatInput>{});
  } else {
    with_output(std::integral_constant<NormOutput, NormOutput::kSwish>{});
  }
}

template <class T>
bool empty_or_vectorable(Rows<T> rows) {
  return rows.data == nullptr || cuda::vectorable(rows);
}

bool has_grouped(NormOutput output) {
  return output != NormOutput::kConcatInput && output != NormOutput::kSwish;
}

}  // namespace

template <class T>
void norm(Cuda cuda, Rows<const T> x, Rows<const T> gate, const GatedNormOptions<T>& options,
          NormOutput output, Rows<T> y, const NormStatistics<Accum<T>>& statistics) {
  cuda::check_width("norm", x.cols);
  if (x.rows == 0) return;
  NormArgs<T> args = common_args(x, gate, options);
  args.y = y;
  args.mean = statistics.mean.data;
  args.rstd = statistics.rstd.data;
  const bool affine = args.weight != nullptr || args.bias != nullptr;
  const bool vector = cuda::vectorable(x) && empty_or_vectorable(gate) && cuda::vectorable(y);
  if constexpr (std::is_same_v<T, bf16>) {
    if (vector && !affine && cuda::grouped(x.cols) && has_grouped(output)) {
      norm_grouped(cuda::stream_of(cuda.stream), output, args, {});
      return cuda::check_launch("norm");
    }
  }
  const dim3 block = cuda::team_block(x.cols);
  const auto blocks =
      static_cast<unsigned>(std::min<std::int64_t>(2112, cuda::divide_up(x.rows, block.y)));
  choose_kernel<T>(output, affine, vector, [&](auto out, auto has_affine, auto vectors) {
    norm_kernel<T, out.value, has_affine.value, vectors.value>
        <<<blocks, block, 0, cuda::stream_of(cuda.stream)>>>(args);
  });
  cuda::check_launch("norm");
}

template <class T>
bool norm_to_fp8(Cuda cuda, Rows<const T> x, Rows<const T> gate, const GatedNormOptions<T>& options,
                 NormOutput output, const Fp8Rows<T>& y8,
                 const NormStatistics<Accum<T>>& statistics) {
  if constexpr (std::is_same_v<T, bf16>) {
    NormArgs<T> args = common_args(x, gate, options);
    args.mean = statistics.mean.data;
    args.rstd = statistics.rstd.data;
    if (x.rows == 0 || args.weight != nullptr || args.bias != nullptr || !cuda::grouped(x.cols) ||
        !has_grouped(output) || !cuda::vectorable(x) || !empty_or_vectorable(gate)) {
      return false;
    }
    norm_grouped(cuda::stream_of(cuda.stream), output, args, y8);
    cuda::check_launch("norm");
    return true;
  } else {
    return false;
  }
}

template <class T>
void norm_backward(Cuda cuda, Rows<const T> x, Rows<const T> gate, Rows<const T> dy,
                   const NormResidual<T>& residual, const GatedNormOptions<T>& options,
                   NormOutput output, const NormStatistics<const Accum<T>>& statistics,
                   const GatedNormGradients<T>& gradients) {
  using A = Accum<T>;
  cuda::check_width("norm_backward", x.cols);
  if (x.rows == 0) return;
  cudaStream_t stream = cuda::stream_of(cuda.stream);
  NormArgs<T> args = common_args(x, gate, options);
  args.dy = dy;
  args.residual = residual.rows;
  args.dx = gradients.dx;
  args.dgate = gradients.dgate;
  args.mean = const_cast<A*>(statistics.mean.data);  // the kernel only reads them
  args.rstd = const_cast<A*>(statistics.rstd.data);
  const bool weights = gradients.dweight.data != nullptr;
  const bool biases = gradients.dbias.data != nullptr;
  const dim3 block = cuda::team_block(x.cols);
  const std::int64_t blocks = column_sum_blocks(x.rows, block.y);
  WorkspaceScope scope(cuda.workspace);
  if (weights) args.dweight_parts = scope.take<A, 2>({blocks, x.cols}).data;
  if (biases) args.dbias_parts = scope.take<A, 2>({blocks, x.cols}).data;
  const bool affine = args.weight != nullptr || args.bias != nullptr || weights || biases;
  const bool vector = cuda::vectorable(x) && empty_or_vectorable(gate) && cuda::vectorable(dy) &&
                      empty_or_vectorable(residual.rows) && cuda::vectorable(gradients.dx) &&
                      empty_or_vectorable(gradients.dgate);
  if constexpr (std::is_same_v<T, bf16>) {
    if (vector && !affine && cuda::grouped(x.cols) && has_grouped(output)) {
      if (residual.sums.data != nullptr) {
        args.residual_parts = scope.take<A, 2>({kColumnSumBlocks, x.cols}).data;
      }
      const std::int64_t parts = norm_backward_grouped(stream, output, args);
      if (residual.sums.data != nullptr) {
        add_parts<A>(stream, args.residual_parts, parts, residual.sums);
      }
      return cuda::check_launch("norm_backward");
    }
  }
  if (residual.sums.data != nullptr) {  // first: dx may be the residual
    WorkspaceScope summing(cuda.workspace);
    A* parts = summing.take<A, 2>({column_parts(x.rows), x.cols}).data;
    add_column_sums<T>(stream, residual.rows, parts, residual.sums);
  }
  choose_kernel<T>(output, affine, vector, [&](auto out, auto has_affine, auto vectors) {
    norm_backward_kernel<T, out.value, has_affine.value, vectors.value>
        <<<static_cast<unsigned>(blocks), block, 0, stream>>>(args);
  });
  if (weights) add_parts<A>(stream, args.dweight_parts, blocks, gradients.dweight);
  if (biases) add_parts<A>(stream, args.dbias_parts, blocks, gradients.dbias);
  cuda::check_launch("norm_backward");
}

template <class T>
std::size_t norm_workspace_bytes(Cuda, std::int64_t cols) {
  return 3 * workspace_bytes_of<Accum<T>>(kColumnSumBlocks * cols);
}

#define TGR_INSTANTIATE(T)                                                                       \
  template void norm<T>(Cuda, Rows<const T>, Rows<const T>, const GatedNormOptions<T>&,          \
                        NormOutput, Rows<T>, const NormStatistics<Accum<T>>&);                   \
  template bool norm_to_fp8<T>(Cuda, Rows<const T>, Rows<const T>, const GatedNormOptions<T>&,   \
                               NormOutput, const Fp8Rows<T>&, const NormStatistics<Accum<T>>&);  \
  template void norm_backward<T>(Cuda, Rows<const T>, Rows<const T>, Rows<const T>,              \
                                 const NormResidual<T>&, const GatedNormOptions<T>&, NormOutput, \
                                 const NormStatistics<const Accum<T>>&,                          \
                                 const GatedNormGradients<T>&);                                  \
  template std::size_t norm_workspace_bytes<T>(Cuda, std::int64_t);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
