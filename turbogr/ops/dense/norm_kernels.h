// What a device fills in for norm.h, gated_norm.h and swish_norm.h: one norm, with five ways to go
// on.
#pragma once

#include "turbogr/core/host_device.h"
#include "turbogr/ops/dense/gated_norm.h"
#include "turbogr/ops/dense/norm.h"

namespace turbogr::ops::kernels {

enum class NormOutput : std::uint8_t {
  kPlain,
  kGated,
  kConcat,       // [gate | norm(x) | gate * norm(x)]
  kConcatInput,  // [gate | x | gate * norm(x)]
  kSwish         // x * sigmoid(norm(x))
};

TGR_HD constexpr bool has_gate(NormOutput output) {
  return output != NormOutput::kPlain && output != NormOutput::kSwish;
}

// Only those with a gate have dropout.
template <class T>
void norm(Cpu cpu, Rows<const T> x, Rows<const T> gate, const GatedNormOptions<T>& options,
          NormOutput output, Rows<T> y, const NormStatistics<Accum<T>>& statistics);
template <class T>
void norm(Cuda cuda, Rows<const T> x, Rows<const T> gate, const GatedNormOptions<T>& options,
          NormOutput output, Rows<T> y, const NormStatistics<Accum<T>>& statistics);

// The result straight to eight bits, where there is a kernel for it; else nothing is done.
template <class T>
bool norm_to_fp8(Cpu, Rows<const T>, Rows<const T>, const GatedNormOptions<T>&, NormOutput,
                 const Fp8Rows<T>&, const NormStatistics<Accum<T>>&) {
  return false;
}
template <class T>
bool norm_to_fp8(Cuda cuda, Rows<const T> x, Rows<const T> gate, const GatedNormOptions<T>& options,
                 NormOutput output, const Fp8Rows<T>& y8,
                 const NormStatistics<Accum<T>>& statistics);

// Empty unless plain.
template <class T>
struct NormResidual {
  Rows<const T> rows;
  View<Accum<T>, 1> sums;
};

template <class T>
void norm_backward(Cpu cpu, Rows<const T> x, Rows<const T> gate, Rows<const T> dy,
                   const NormResidual<T>& residual, const GatedNormOptions<T>& options,
                   NormOutput output, const NormStatistics<const Accum<T>>& statistics,
                   const GatedNormGradients<T>& gradients);
template <class T>
void norm_backward(Cuda cuda, Rows<const T> x, Rows<const T> gate, Rows<const T> dy,
                   const NormResidual<T>& residual, const GatedNormOptions<T>& options,
                   NormOutput output, const NormStatistics<const Accum<T>>& statistics,
                   const GatedNormGradients<T>& gradients);

template <class T>
std::size_t norm_workspace_bytes(Cpu cpu, std::int64_t cols);
template <class T>
std::size_t norm_workspace_bytes(Cuda cuda, std::int64_t cols);

// The specification, in f64, has sources of its own.
template <>
void norm<double>(Cpu cpu, Rows<const double> x, Rows<const double> gate,
                  const GatedNormOptions<double>& options, NormOutput output, Rows<double> y,
                  const NormStatistics<double>& statistics);
template <>
void norm_backward<double>(Cpu cpu, Rows<const double> x, Rows<const double> gate,
                           Rows<const double> dy, const NormResidual<double>& residual,
                           const GatedNormOptions<double>& options, NormOutput output,
                           const NormStatistics<const double>& statistics,
                           const GatedNormGradients<double>& gradients);

}  // namespace turbogr::ops::kernels
