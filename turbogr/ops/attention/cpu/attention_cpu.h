// The work of both attentions on the CPU: cuts a call into items, hands them to threads longest
// first and sums the tables' gradients in a fixed order.
#pragma once

#include <cstddef>

#include "turbogr/ops/attention/attention_kernels.h"

namespace turbogr::ops {

// How the two tables enter: added to the score (HSTU), or as maps of their own (FuXi).
enum class TableRole : std::uint8_t { kBias, kMaps };

std::size_t attention_workspace_bytes(const AttentionShape& shape, TableRole role);
std::size_t attention_backward_workspace_bytes(const AttentionShape& shape, TableRole role);

// T is float or bf16.
template <class T>
void run_attention(Cpu cpu, const AttentionProblem<T>& problem, TableRole role, Rows<T> out);
template <class T>
void run_attention_backward(Cpu cpu, const AttentionProblem<T>& problem, TableRole role,
                            Rows<const T> dout, const AttentionGradients<T>& gradients);

}  // namespace turbogr::ops
