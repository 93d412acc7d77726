// A parameter matrix with the products it is used in: the master copy rounded to T and packed,
// renewed after each update; for the products of training, where asked for, in fp8.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "turbogr/model/fp8_product.h"
#include "turbogr/model/parameters.h"
#include "turbogr/ops/dense/linear.h"

namespace turbogr::model {

template <class T>
class WeightMatrix {
 public:
  // Registers a [inputs, outputs] parameter.
  WeightMatrix(ParameterSet<T>& parameters, ParameterSpec spec);

  // Before the first refresh: products of training steps of up to `capacity` rows are in fp8.
  void use_fp8(const Context& ctx, const ParameterSet<T>& parameters, std::int64_t capacity,
               Fp8Shared<T>& shared);

  // Rounds and packs the current values. Before the first product and after every update.
  void refresh(const Context& ctx, const ParameterSet<T>& parameters);

  // Where an update may write the rounded values itself, and spare the refresh; null where products
  // want another layout. Since the first refresh.
  T* rounded() { return packed_->plain().data; }

  // Where what makes x for multiply, and dz for multiply_backward, is to quantise it: see
  // Fp8Product. Without a scale: nowhere.
  ops::Fp8Rows<T> fp8_input(const StepInput& step, std::int64_t rows) const {
    return fp8_ && step.training ? fp8_->place_of_input(step, rows) : ops::Fp8Rows<T>{};
  }
  ops::Fp8Rows<T> fp8_gradient(const StepInput& step, std::int64_t rows) const {
    return fp8_ ? fp8_->place_of_gradient(step, rows) : ops::Fp8Rows<T>{};
  }

  // y = x W + bias + residual; in a training step what backward needs of x is kept.
  void multiply(const Context& ctx, const StepInput& step, Rows<const T> x,
                const ops::LinearOptions<T>& options, Rows<T> y) const;
  // Of the last training step's multiply.
  void multiply_backward(const Context& ctx, const StepInput& step, Rows<const T> x,
                         Rows<const T> dz, const ops::LinearGradients<T>& gradients) const;

  const ops::PackedWeight<T>& packed() const { return *packed_; }
  std::size_t fp8_bytes() const { return fp8_ ? fp8_->bytes() : 0; }
  int index() const { return index_; }
  View<Accum<T>, 2> gradient(ParameterSet<T>& parameters) const {
    return parameters.gradient(index_).template view<Accum<T>, 2>();
  }

 private:
  int index_;
  Tensor rounded_;  // bf16 on a CPU: elsewhere the master copy is packed as it is, or rounded there
  std::optional<ops::PackedWeight<T>> packed_;
  std::unique_ptr<Fp8Product<T>> fp8_;
};

}  // namespace turbogr::model
