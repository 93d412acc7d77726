// The vectorised rows of event_input_cpu.cc, one table per instruction set.
#pragma once

#include <cstdint>
#include <type_traits>

#include "turbogr/core/dtype.h"
#include "turbogr/core/simd_level.h"
#include "turbogr/ops/dense/dropout_simd.h"

namespace turbogr {

template <class T>
struct EventInputLoops {
  // x = (scale token + position + time) dropout
  void (*forward)(const DropoutRowArgs&, float scale, const T* token, const float* position,
                  const float* time, T* x);
  // d = dx dropout, dtoken = scale d
  void (*backward)(const DropoutRowArgs&, float scale, const T* dx, T* dtoken, float* d);
};

struct EventInputTable {
  EventInputLoops<float> f32;
  EventInputLoops<bf16> bf16s;
  void (*add)(std::int64_t count, const float* x, float* y);  // y += x

  template <class T>
  const EventInputLoops<T>& of() const {
    if constexpr (std::is_same_v<T, bf16>) {
      return bf16s;
    } else {
      return f32;
    }
  }
};

TGR_SIMD_TABLES(EventInputTable, event_input_table)

}  // namespace turbogr
