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

// For every pair of types, with what says where: a context or a device.
#define TGR_MOVE_ROWS(Where, From, To)                                                   \
  template void move_rows<From, To, std::int64_t>(Where, Rows<const From>,               \
                                                  View<const std::int64_t, 1>, Rows<To>, \
                                                  View<const std::int32_t, 1>);          \
  template void move_rows<From, To, std::int32_t>(Where, Rows<const From>,               \
                                                  View<const std::int32_t, 1>, Rows<To>, \
                                                  View<const std::int32_t, 1>);
#define TGR_MOVE_ROWS_FROM(Where, From) \
  TGR_MOVE_ROWS(Where, From, float)     \
  TGR_MOVE_ROWS(Where, From, bf16)      \
  TGR_MOVE_ROWS(Where, From, f16)
#define TGR_INSTANTIATE_MOVE_ROWS(Where) \
  TGR_MOVE_ROWS_FROM(Where, float)       \
  TGR_MOVE_ROWS_FROM(Where, bf16)        \
  TGR_MOVE_ROWS_FROM(Where, f16)
