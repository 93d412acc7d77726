// Dropout: y = x * keep / (1 - rate), keep drawn from (seed, site, row key, column) alone. The
// backward pass draws the same mask again; nothing is saved, and neither threads nor ranks change
// it.
#pragma once

#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

struct DropoutOptions {
  double rate = 0;         // in [0, 1); resolved to multiples of 2^-16. 0 is the identity.
  std::uint64_t seed = 0;  // the run's
  std::uint64_t site = 0;  // below 2^40: which dropout of which layer of which step
  // [N] what tells rows apart, e.g. (sample, position); empty: the row's index.
  View<const std::uint64_t, 1> row_keys;
};

// x, y [N, D]; y may be x.
template <class T>
void dropout(const Context& ctx, Rows<const T> x, const DropoutOptions& options, Rows<T> y);

// Overwrites dx; dx may be dy.
template <class T>
void dropout_backward(const Context& ctx, Rows<const T> dy, const DropoutOptions& options,
                      Rows<T> dx);

// Throws when the rate, the site or the row keys cannot be used with `rows` rows; for operators
// that fuse it.
void check_dropout(const char* op, const DropoutOptions& options, std::int64_t rows);

}  // namespace turbogr::ops
