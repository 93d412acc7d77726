// The item table: a row an item, in f32, bf16 or f16, and the optimiser state that goes with it.
// Rows are read by gathering and changed only where a batch touched them: moments of other rows
// rest (lazy). Rows in bf16 or f16 are updated in f32 and rounded by chance (ops/rows/row_keys.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/rows/embedding.h"
#include "turbogr/ops/rows/random_rows.h"
#include "turbogr/ops/rows/row_keys.h"
#include "turbogr/ops/rows/update.h"

namespace turbogr::embedding {

using SparseOptimiser = ops::RowOptimiser;

SparseOptimiser sparse_optimiser_from_name(std::string_view name);  // adamw, adagrad or sgd

// Calls body with the [V, D] view of a table's weights, in the format they have.
template <class TensorOf, class Body>  // Tensor or const Tensor
void with_weights(TensorOf& weights, Body&& body) {
  if (weights.dtype() == DType::kBf16) {
    body(weights.template view<bf16, 2>());
  } else if (weights.dtype() == DType::kF16) {
    body(weights.template view<f16, 2>());
  } else {
    body(weights.template view<float, 2>());
  }
}

class ItemTable {
 public:
  // Rows start by chance, each a function of (seed, its own index): a larger table begins with the
  // rows of a smaller one.
  ItemTable(std::int64_t rows, std::int64_t width, SparseOptimiser optimiser,
            Device device = Device::kCpu, DType dtype = DType::kF32);
  // bf16 and f16: which rows of the whole these are; all of it, seed 0, unless it is said.
  void set_keys(const ops::RowKeys& keys) { keys_ = keys; }
  void initialise(const Context& ctx, std::uint64_t seed, ops::RowStart start);

  std::int64_t rows() const { return weights_.shape()[0]; }
  std::int64_t width() const { return weights_.shape()[1]; }
  DType dtype() const { return weights_.dtype(); }
  View<const float, 2> weights() const { return weights_.view<float, 2>(); }  // of a table in f32
  // out(i) = the row of ids(i), in T. All memory is the table's device's, or pinned.
  template <class T, class Index = std::int64_t>
  void gather(const Context& ctx, View<const Index, 1> ids, Rows<T> out) const {
    with_weights(weights_, [&]<class Weight>(View<const Weight, 2> weights) {
      ops::gather_rows<Weight, T, Index>(ctx, weights, ids, out);
    });
  }

  // Applies one step to the rows `ids` (distinct, in range), whose summed gradients are the rows of
  // `gradient`.
  //   AdamW     lazy moments, decoupled decay
  //   AdaGrad   v += mean(g^2) a row, w -= rate * g / sqrt(v + epsilon)
  //   SGD       w -= rate * g
  // Nothing happens where `scale` says that numbers are not finite. All memory is the table's
  // device's.
  void update(const Context& ctx, View<const std::int64_t, 1> ids, Rows<const float> gradient,
              const AdamWSettings& settings, const ops::StepScale* scale = nullptr);
  // The same, and copies of the rows as they are afterwards (turbogr/ops/rows/update.h).
  template <class T>  // float or bf16
  void update(const Context& ctx, View<const std::int64_t, 1> ids, Rows<const float> gradient,
              const AdamWSettings& settings, const ops::StepScale* scale,
              const ops::RowCopies<T>& copies, const ops::RowPart& part = {}) {
    ops::update_rows<T>(ctx, optimiser_, state(), ids, gradient, settings, scale, copies, part);
  }

  std::size_t bytes() const {
    return weights_.bytes() + first_moment_.bytes() + second_moment_.bytes();
  }

  // Named parts, for checkpoints.
  bool has_first_moment() const { return optimiser_ == SparseOptimiser::kAdamW; }
  bool has_second_moment() const { return optimiser_ != SparseOptimiser::kSgd; }
  Tensor& weight_tensor() { return weights_; }
  const Tensor& weight_tensor() const { return weights_; }
  Tensor& first_moment() { return first_moment_; }    // [V, D], AdamW
  Tensor& second_moment() { return second_moment_; }  // [V, D], AdamW; [V], AdaGrad

 private:
  ops::TableRows state();

  SparseOptimiser optimiser_;
  ops::RowKeys keys_;
  Tensor weights_;
  Tensor first_moment_;
  Tensor second_moment_;
};

}  // namespace turbogr::embedding
