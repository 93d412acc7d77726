// A weight's products in fp8 (ops/dense/fp8_linear.h) over a training step: operands are quantised
// on their way, and x is kept in eight bits from forward to backward. Scales of x and of gradients
// follow the steps before; a weight, small beside them, is looked at twice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/model/step_input.h"
#include "turbogr/ops/dense/fp8_linear.h"

namespace turbogr::model {

// What the products of a model share: operands that are read by the next product and by none after
// it, and the scales of all, as one tensor.
template <class T>
struct Fp8Shared {
  Fp8Shared(Device device, std::int64_t capacity, std::int64_t widest, std::int64_t products);

  Tensor by_row, by_column;  // GPU: [capacity, widest], [widest, padded capacity]
  Tensor values;             // CPU: [capacity, widest]

  Tensor scales;  // three ops::Fp8Scale a product
  std::int64_t scales_taken = 0;

  std::size_t bytes() const {
    return by_row.bytes() + by_column.bytes() + values.bytes() + scales.bytes();
  }
};

template <class T>
class Fp8Product {
 public:
  // What is shared outlives the product.
  Fp8Product(const Context& ctx, std::int64_t inputs, std::int64_t outputs, std::int64_t capacity,
             Fp8Shared<T>& shared);

  // Where x for the next forward, or dz for the next backward, is to be quantised by what makes it.
  // Without a scale it is not: in a run's first step operands are looked at before.
  ops::Fp8Rows<T> place_of_input(const StepInput& step, std::int64_t rows) {
    return place_of(step, kInput, rows, inputs_);
  }
  ops::Fp8Rows<T> place_of_gradient(const StepInput& step, std::int64_t rows) {
    return place_of(step, kGradient, rows, outputs_);
  }

  // W [inputs, outputs], new. A GPU reads it where it is in every forward, since updates go on
  // there.
  void take_weight(const Context& ctx, View<const T, 2> weight);
  // x and dz are not read where they are in their places.
  void forward(const Context& ctx, const StepInput& step, Rows<const T> x,
               const ops::LinearOptions<T>& options, Rows<T> y);
  // Of the last forward; without db.
  void backward(const Context& ctx, const StepInput& step, Rows<const T> dz,
                const ops::LinearGradients<T>& gradients);

  std::size_t bytes() const;

 private:
  enum Operand : std::uint8_t { kInput, kWeight, kGradient };
  ops::Fp8Rows<T> place_of(const StepInput& step, Operand which, std::int64_t rows,
                           std::int64_t cols);
  ops::Fp8Rows<T> operand(Operand which, std::int64_t rows, std::int64_t cols);
  ops::Fp8Weight<T> weight();
  void quantise(const Context& ctx, bool measures, Rows<const T> x, const ops::Fp8Rows<T>& out);
  void quantise_operand(const Context& ctx, const StepInput& step, Operand which, Rows<const T> x,
                        const ops::Fp8Rows<T>& out);

  std::int64_t inputs_, outputs_;
  bool gpu_;
  Fp8Shared<T>& shared_;
  Tensor kept_;                          // x: GPU [inputs, padded capacity], CPU [capacity, inputs]
  Tensor weight_rows_, weight_columns_;  // CPU: the first, as numbers of T
  std::optional<ops::PackedWeight<T>> packed_;  // CPU
  View<const T, 2> weight_source_;              // GPU
  ops::Fp8Scale* scales_;
  std::array<bool, 3> given_ = {};  // quantised in its place already
  std::int64_t rows_ = 0;           // of the last forward
};

}  // namespace turbogr::model
