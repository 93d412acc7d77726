// What a device fills in for top_k.h.
#pragma once

#include "turbogr/ops/rows/top_k.h"

namespace turbogr::ops::kernels {

template <class T>
void top_k(Cpu cpu, const RetrievalInputs<T>& inputs, const TopKOutput<T>& output);
template <class T>
void top_k(Cuda cuda, const RetrievalInputs<T>& inputs, const TopKOutput<T>& output);
template <class T>
void rank_of_target(Cpu cpu, const RetrievalInputs<T>& inputs, View<std::int64_t, 1> ranks);
template <class T>
void rank_of_target(Cuda cuda, const RetrievalInputs<T>& inputs, View<std::int64_t, 1> ranks);

std::size_t top_k_workspace_bytes(Cpu cpu, std::int64_t queries, std::int64_t width,
                                  std::int64_t num_excluded, std::int64_t k);
std::size_t top_k_workspace_bytes(Cuda cuda, std::int64_t queries, std::int64_t width,
                                  std::int64_t num_excluded, std::int64_t k);

}  // namespace turbogr::ops::kernels
