// A model's input rows: x = dropout(scale * e + p[position] + extra), where a row's position is its
// index inside its sequence.
//
//   combine_input<float>(ctx, {e, offsets}, p, {.scale = std::sqrt(width)}, x);
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/dense/dropout.h"

namespace turbogr::ops {

template <class T>
struct CombineInputOptions {
  double scale = 1;     // of e: sqrt(D) for the models here
  Rows<const T> extra;  // [N, D], e.g. an embedding of the action signals; or empty
  DropoutOptions dropout;
};

// e: B sequences, [N, D] in all; p [S, D], S at least the longest sequence; x [N, D]. x may be e's
// values.
template <class T>
void combine_input(const Context& ctx, Jagged<const T> e, View<const T, 2> p,
                   const CombineInputOptions<T>& options, Rows<T> x);

template <class T>
struct CombineInputGradients {
  Rows<T> de;            // [N, D], overwritten
  View<Accum<T>, 2> dp;  // [S, D], added to; empty: not computed
  Rows<T> dextra;        // [N, D], overwritten; empty: not computed
};

// Summed over sequences in their order, so dp's bits do not depend on the number of threads. de may
// be dx's values.
template <class T>
void combine_input_backward(const Context& ctx, Jagged<const T> dx,
                            const CombineInputOptions<T>& options,
                            const CombineInputGradients<T>& gradients);

}  // namespace turbogr::ops
