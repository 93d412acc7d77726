// Some columns of a linear layer's weight and bias as a layer of their own: packed for products
// with other rows than the rest, their gradients brought back to the whole.
//
//   ColumnPart<float> part({{0, 64}, {128, 64}});          // two runs, side by side
//   part.refresh(ctx, weight, bias);                        // after every update
//   ops::linear<float>(ctx, x, part.packed(), {.bias = part.bias()}, y);
//   part.clear_gradients(ctx);
//   ops::linear_backward<float>(ctx, x, part.packed(), dy, {}, {dx, part.dweight(), part.dbias()});
//   part.add_gradients(ctx, dweight, dbias);
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/dense/linear.h"

namespace turbogr::model {

template <class T>
class ColumnPart {
 public:
  using A = Accum<T>;
  struct Run {
    std::int64_t begin, count;
  };
  explicit ColumnPart(std::vector<Run> runs);

  // weight [K, N], bias [N] or empty.
  void refresh(const Context& ctx, View<const A, 2> weight, View<const A, 1> bias);
  const ops::PackedWeight<T>& packed() const { return *packed_; }
  View<const A, 1> bias() const;

  void clear_gradients(const Context& ctx);
  View<A, 2> dweight() { return dweight_.template view<A, 2>(); }
  View<A, 1> dbias();  // empty where there is no bias
  void add_gradients(const Context& ctx, View<A, 2> dweight, View<A, 1> dbias);

 private:
  void copy_columns(const Context& ctx, Rows<const A> whole, Tensor& part) const;
  void add_columns(const Context& ctx, Rows<const A> part, Rows<A> whole) const;

  std::vector<Run> runs_;
  std::int64_t cols_ = 0;
  std::optional<ops::PackedWeight<T>> packed_;
  Tensor weight_, rounded_, bias_;  // [K, C] in A and T, [1, C]
  Tensor dweight_, dbias_;
};

}  // namespace turbogr::model
