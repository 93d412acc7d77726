// What a device fills in for action_bits.h.
#pragma once

#include "turbogr/ops/rows/action_bits.h"

namespace turbogr::ops::kernels {

template <class T>
void action_bits(Cpu cpu, const EventSequences& sequences,
                 const ActionBlocks<const Accum<T>>& blocks, View<const std::uint32_t, 1> masks,
                 Rows<T> rows);
template <class T>
void action_bits_backward(Cpu cpu, const EventSequences& sequences,
                          View<const std::uint32_t, 1> masks, Rows<const T> drows,
                          const ActionBlocks<Accum<T>>& dblocks);

template <class T>
void action_bits(Cuda cuda, const EventSequences& sequences,
                 const ActionBlocks<const Accum<T>>& blocks, View<const std::uint32_t, 1> masks,
                 Rows<T> rows);
template <class T>
void action_bits_backward(Cuda cuda, const EventSequences& sequences,
                          View<const std::uint32_t, 1> masks, Rows<const T> drows,
                          const ActionBlocks<Accum<T>>& dblocks);
template <class T>
std::size_t action_bits_workspace_bytes(Cuda cuda, std::int64_t cols);

}  // namespace turbogr::ops::kernels
