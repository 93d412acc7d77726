// What a device fills in for embedding.h.
#pragma once

#include "turbogr/ops/rows/embedding.h"

namespace turbogr::ops::kernels {

std::int64_t dedup_ids(Cpu cpu, View<const std::int64_t, 1> ids, const DedupOutput& output);
std::int64_t dedup_ids(Cuda cuda, View<const std::int64_t, 1> ids, const DedupOutput& output);
std::size_t dedup_ids_workspace_bytes(Cpu cpu, std::int64_t num_ids);
std::size_t dedup_ids_workspace_bytes(Cuda cuda, std::int64_t num_ids);

template <class T, class Out, class Index>
void gather_rows(Cpu cpu, Rows<const T> table, View<const Index, 1> ids, Rows<Out> out);
template <class T, class Out, class Index>
void gather_rows(Cuda cuda, Rows<const T> table, View<const Index, 1> ids, Rows<Out> out);

// Into row u of `sums`, overwriting, or into row unique(u), adding.
template <class T>
void sum_groups(Cpu cpu, Rows<const T> drows, const IdGroups& groups, bool scatter,
                Rows<Accum<T>> sums);
template <class T>
void sum_groups(Cuda cuda, Rows<const T> drows, const IdGroups& groups, bool scatter,
                Rows<Accum<T>> sums);

template <class T>
std::size_t sum_groups_workspace_bytes(Cpu, std::int64_t, std::int64_t) {
  return 0;
}
template <class T>
std::size_t sum_groups_workspace_bytes(Cuda cuda, std::int64_t rows, std::int64_t width);

template <class T>
void place_rows(Cpu cpu, Rows<const T> rows, View<const std::int32_t, 1> places, Rows<T> out);
template <class T>
void place_rows(Cuda cuda, Rows<const T> rows, View<const std::int32_t, 1> places, Rows<T> out);

}  // namespace turbogr::ops::kernels
