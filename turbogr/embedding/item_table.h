// The item table: one f32 row an item, and the optimiser state that goes with it. Rows are read by
// gathering and changed only where a batch touched them: moments of other rows rest (lazy).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/rows/update.h"

namespace turbogr::embedding {

using SparseOptimiser = ops::RowOptimiser;

SparseOptimiser sparse_optimiser_from_name(std::string_view name);  // adamw, adagrad or sgd

class ItemTable {
 public:
  // Rows start truncated normal(scale), each a function of (seed, its own index): a larger table
  // begins with the rows of a smaller one.
  ItemTable(std::int64_t rows, std::int64_t width, SparseOptimiser optimiser,
            Device device = Device::kCpu);
  void initialise(const Context& ctx, std::uint64_t seed, double scale);
  void initialise_from(const Context& ctx, std::int64_t first_row, std::uint64_t seed,
                       double scale);

  std::int64_t rows() const { return weights_.shape()[0]; }
  std::int64_t width() const { return weights_.shape()[1]; }
  View<const float, 2> weights() const { return weights_.view<float, 2>(); }

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
  Tensor& first_moment() { return first_moment_; }    // [V, D], AdamW
  Tensor& second_moment() { return second_moment_; }  // [V, D], AdamW; [V], AdaGrad

 private:
  ops::TableRows state();

  SparseOptimiser optimiser_;
  Tensor weights_;
  Tensor first_moment_;
  Tensor second_moment_;
};

}  // namespace turbogr::embedding
