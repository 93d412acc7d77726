// The vectorised heads of target_attention_cpu.cc, one table per instruction set.
#pragma once

#include <cstdint>
#include <type_traits>

#include "turbogr/core/dtype.h"
#include "turbogr/core/simd_level.h"

namespace turbogr {

inline constexpr std::int64_t kMostTargetWidth = 256;  // of a head

// One head of one sequence: `targets` queries, each seeing the first `before` tokens and itself,
// token `before` + its index.
template <class T>
struct TargetHead {
  struct In {
    const T* data;
    std::int64_t stride;
  };
  struct Out {
    T* data;
    std::int64_t stride;
  };
  std::int64_t before, targets;
  std::int64_t qk_width, v_width;
  float alpha, scale;
  In q;     // from the first target on
  In k, v;  // from the first token on
  Out out;  // as q
  In dout;
  Out dq;
  Out dk, dv;  // as k
};

struct TargetAttentionTable {
  void (*forward_f32)(const TargetHead<float>&);
  void (*forward_bf16)(const TargetHead<bf16>&);
  void (*backward_f32)(const TargetHead<float>&);
  void (*backward_bf16)(const TargetHead<bf16>&);

  template <class T>
  auto forward() const {
    if constexpr (std::is_same_v<T, bf16>) {
      return forward_bf16;
    } else {
      return forward_f32;
    }
  }
  template <class T>
  auto backward() const {
    if constexpr (std::is_same_v<T, bf16>) {
      return backward_bf16;
    } else {
      return backward_f32;
    }
  }
};

TGR_SIMD_TABLES(TargetAttentionTable, target_attention_table)

}  // namespace turbogr
