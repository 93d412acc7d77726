// What a device fills in for target_attention.h.
#pragma once

#include "turbogr/ops/attention/target_attention.h"

namespace turbogr::ops::kernels {

template <class T>
void target_attention(Cpu cpu, const TargetSequences& sequences, Rows<const T> q, Rows<const T> k,
                      Rows<const T> v, const TargetAttentionOptions& options, Rows<T> out);
template <class T>
void target_attention_backward(Cpu cpu, const TargetSequences& sequences, Rows<const T> q,
                               Rows<const T> k, Rows<const T> v,
                               const TargetAttentionOptions& options, Rows<const T> dout,
                               Rows<T> dq, Rows<T> dk, Rows<T> dv);

template <class T>
void target_attention(Cuda cuda, const TargetSequences& sequences, Rows<const T> q, Rows<const T> k,
                      Rows<const T> v, const TargetAttentionOptions& options, Rows<T> out);
template <class T>
void target_attention_backward(Cuda cuda, const TargetSequences& sequences, Rows<const T> q,
                               Rows<const T> k, Rows<const T> v,
                               const TargetAttentionOptions& options, Rows<const T> dout,
                               Rows<T> dq, Rows<T> dk, Rows<T> dv);

// The specification, in f64, has sources of its own.
template <>
void target_attention<double>(Cpu cpu, const TargetSequences& sequences, Rows<const double> q,
                              Rows<const double> k, Rows<const double> v,
                              const TargetAttentionOptions& options, Rows<double> out);
template <>
void target_attention_backward<double>(Cpu cpu, const TargetSequences& sequences,
                                       Rows<const double> q, Rows<const double> k,
                                       Rows<const double> v, const TargetAttentionOptions& options,
                                       Rows<const double> dout, Rows<double> dq, Rows<double> dk,
                                       Rows<double> dv);

}  // namespace turbogr::ops::kernels
