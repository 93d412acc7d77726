// What a device fills in for move_rows.h.
#pragma once

#include "turbogr/ops/rows/move_rows.h"

namespace turbogr::ops::kernels {

template <class From, class To, class Index>
void move_rows(Cpu cpu, Rows<const From> from, View<const Index, 1> from_places, Rows<To> to,
               View<const std::int32_t, 1> to_places);
template <class From, class To, class Index>
void move_rows(Cuda cuda, Rows<const From> from, View<const Index, 1> from_places, Rows<To> to,
               View<const std::int32_t, 1> to_places);

}  // namespace turbogr::ops::kernels
