// One walk over a row for x_simd.cc files: the body is written once and gets whole vectors, then
// the tail.
//
//   over_row(cols, [&](auto lanes, std::int64_t c) {
//     lanes.store(y + c, silu(lanes.load(x + c)));
//   });
#pragma once

#include "turbogr/core/simd.h"

namespace turbogr::TGR_SIMD {
namespace {

struct WholeLanes {
  template <class T>
  Floats load(const T* p) const {
    return TGR_SIMD::load(p);
  }
  template <class T>
  void store(T* p, Floats v) const {
    TGR_SIMD::store(p, v);
  }
  Floats keep(Floats v) const { return v; }
};

// The first `count` lanes: the others load as zero, are not stored, and keep() clears them.
struct FirstLanes {
  std::int64_t count;

  template <class T>
  Floats load(const T* p) const {
    return load_first(p, count);
  }
  template <class T>
  void store(T* p, Floats v) const {
    store_first(p, v, count);
  }
  Floats keep(Floats v) const { return keep_first(v, count); }
};

template <class Body>
inline void over_row(std::int64_t cols, Body&& body) {
  std::int64_t c = 0;
  for (; c + kLanes <= cols; c += kLanes) body(WholeLanes{}, c);
  if (c < cols) body(FirstLanes{cols - c}, c);
}

}  // namespace
}  // namespace turbogr::TGR_SIMD
