// What a device fills in for hstu_attention.h and fuxi_attention.h.
#pragma once

#include <cstddef>

#include "turbogr/core/context.h"
#include "turbogr/ops/attention/attention_plan.h"
#include "turbogr/ops/attention/attention_types.h"

namespace turbogr::ops {

// The inputs and options of either attention, checked.
template <class T>
struct AttentionProblem {
  Jagged<const T> q;
  Rows<const T> k;
  Rows<const T> v;
  AttentionBias<T> bias;
  int heads = 1;
  double alpha = 1;
  double norm_length = 1;
  AttentionMask mask;
  std::int64_t max_length = 0;  // 0: not known
  const AttentionPlan* plan = nullptr;
  View<std::byte, 1> kept;  // see HstuAttentionOptions
  bool kept_ready = false;
  bool deterministic = false;
};

template <class T>
struct AttentionGradients {
  Rows<T> dq;
  Rows<T> dk;
  Rows<T> dv;
  AttentionBiasGradient<T> dbias;
  Rows<const T> q_before = {};  // where dq is wanted before SiLU
  Rows<const T> k_before = {};
  Rows<const T> v_before = {};
};

namespace kernels {

template <class T>
void hstu_attention(Cpu cpu, const AttentionProblem<T>& problem, Rows<T> out);
// Whether dq is the gradient before SiLU, if that is wanted; on the CPU, whether all three are.
template <class T>
bool hstu_attention_backward(Cpu cpu, const AttentionProblem<T>& problem, Rows<const T> dout,
                             const AttentionGradients<T>& gradients);

template <class T>
void fuxi_attention(Cpu cpu, const AttentionProblem<T>& problem, Rows<T> out);
template <class T>
void fuxi_attention_backward(Cpu cpu, const AttentionProblem<T>& problem, Rows<const T> dout,
                             const AttentionGradients<T>& gradients);

template <class T>
void hstu_attention(Cuda cuda, const AttentionProblem<T>& problem, Rows<T> out);
template <class T>
bool hstu_attention_backward(Cuda cuda, const AttentionProblem<T>& problem, Rows<const T> dout,
                             const AttentionGradients<T>& gradients);

template <class T>
void fuxi_attention(Cuda cuda, const AttentionProblem<T>& problem, Rows<T> out);
template <class T>
void fuxi_attention_backward(Cuda cuda, const AttentionProblem<T>& problem, Rows<const T> dout,
                             const AttentionGradients<T>& gradients);

// On a GPU. Scratch of one call, either direction; what a plan takes, 0 where the kernels that
// will run need none; the plan itself.
template <class T>
std::size_t attention_workspace_bytes(AttentionKind kind, const AttentionShape& shape,
                                      bool backward);
template <class T>
std::size_t attention_plan_bytes(AttentionKind kind, const AttentionShape& shape);
template <class T>
std::size_t attention_kept_bytes(AttentionKind kind, const AttentionShape& shape);
void make_attention_plan(Cuda cuda, const AttentionBatch& batch, const AttentionPlan& plan);

// The specification, in f64, has sources of its own.
template <>
void hstu_attention<double>(Cpu, const AttentionProblem<double>& problem, Rows<double> out);
template <>
bool hstu_attention_backward<double>(Cpu, const AttentionProblem<double>& problem,
                                     Rows<const double> dout,
                                     const AttentionGradients<double>& gradients);
template <>
void fuxi_attention<double>(Cpu, const AttentionProblem<double>& problem, Rows<double> out);
template <>
void fuxi_attention_backward<double>(Cpu, const AttentionProblem<double>& problem,
                                     Rows<const double> dout,
                                     const AttentionGradients<double>& gradients);

}  // namespace kernels
}  // namespace turbogr::ops
