#include "turbogr/model/fp8_product.h"

#include <utility>

namespace turbogr::model {
namespace {

std::uint8_t* fp8_bytes_of(Tensor& tensor) {
  return reinterpret_cast<std::uint8_t*>(tensor.data());
}

template <class T>
T* fp8_values_of(Tensor& tensor) {
  return reinterpret_cast<T*>(tensor.data());
}

}  // namespace

template <class T>
Fp8Shared<T>::Fp8Shared(Device device, std::int64_t capacity, std::int64_t widest,
                        std::int64_t products)
    : scales(DType::kU8, {3 * products * static_cast<std::int64_t>(sizeof(ops::Fp8Scale))},
             device) {
  if (device == Device::kCpu) {
    values = Tensor(dtype_of<T>(), {capacity, widest});
  } else {
    by_row = Tensor(DType::kU8, {capacity, widest}, device);
    by_column = Tensor(DType::kU8, {widest, ops::fp8_padded(capacity)}, device);
  }
}

template <class T>
Fp8Product<T>::Fp8Product(const Context& ctx, std::int64_t inputs, std::int64_t outputs,
                          std::int64_t capacity, Fp8Shared<T>& shared)
    : inputs_(inputs),
      outputs_(outputs),
      gpu_(ctx.device() == Device::kCuda),
      shared_(shared),
      scales_(reinterpret_cast<ops::Fp8Scale*>(shared.scales.data()) +
              std::exchange(shared.scales_taken, shared.scales_taken + 3)) {
  if (gpu_) {
    kept_ = Tensor(DType::kU8, {inputs, ops::fp8_padded(capacity)}, ctx.device());
    weight_rows_ = Tensor(DType::kU8, {inputs, outputs}, ctx.device());
    weight_columns_ = Tensor(DType::kU8, {outputs, ops::fp8_padded(inputs)}, ctx.device());
  } else {
    kept_ = Tensor(dtype_of<T>(), {capacity, inputs});
    weight_rows_ = Tensor(dtype_of<T>(), {inputs, outputs});
    packed_.emplace(ctx, inputs, outputs);
  }
}

template <class T>
ops::Fp8Rows<T> Fp8Product<T>::operand(Operand which, std::int64_t rows, std::int64_t cols) {
  // Gradients have the wider range: they differ more from each other.
  ops::Fp8Rows<T> rounded = {
      .format = which == kGradient ? ops::Fp8Format::kE5m2 : ops::Fp8Format::kE4m3,
      .rows = rows,
      .cols = cols,
      .scale = scales_ + which};
  if (gpu_) {
    rounded.by_row = fp8_bytes_of(which == kWeight ? weight_rows_ : shared_.by_row);
    rounded.by_column = fp8_bytes_of(which == kWeight  ? weight_columns_
                                     : which == kInput ? kept_
                                                       : shared_.by_column);
  } else {
    rounded.values = fp8_values_of<T>(which == kWeight  ? weight_rows_
                                      : which == kInput ? kept_
                                                        : shared_.values);
  }
  return rounded;
}

template <class T>
ops::Fp8Rows<T> Fp8Product<T>::place_of(const StepInput& step, Operand which, std::int64_t rows,
                                        std::int64_t cols) {
  if (step.step == 0) return {};
  given_[which] = true;
  return operand(which, rows, cols);
}

template <class T>
ops::Fp8Weight<T> Fp8Product<T>::weight() {
  return {operand(kWeight, inputs_, outputs_), packed_ ? &*packed_ : nullptr};
}

template <class T>
void Fp8Product<T>::quantise(const Context& ctx, bool measures, Rows<const T> x,
                             const ops::Fp8Rows<T>& out) {
  if (measures) {
    ops::Fp8Rows<T> scale_alone = out;
    scale_alone.values = nullptr;
    scale_alone.by_row = scale_alone.by_column = nullptr;
    ops::quantise<T>(ctx, x, scale_alone);
  }
  ops::quantise<T>(ctx, x, out);
}

template <class T>
void Fp8Product<T>::quantise_operand(const Context& ctx, const StepInput& step, Operand which,
                                     Rows<const T> x, const ops::Fp8Rows<T>& out) {
  if (std::exchange(given_[which], false)) return;
  quantise(ctx, /*measures=*/step.step == 0, x, out);
}

template <class T>
void Fp8Product<T>::take_weight(const Context& ctx, View<const T, 2> given) {
  weight_source_ = given;
  if (gpu_) return;
  const ops::Fp8Rows<T> rounded = operand(kWeight, inputs_, outputs_);
  quantise(ctx, /*measures=*/true, given, rounded);
  packed_->pack(ctx, {rounded.values, {inputs_, outputs_}});
}

template <class T>
void Fp8Product<T>::forward(const Context& ctx, const StepInput& step, Rows<const T> x,
                            const ops::LinearOptions<T>& options, Rows<T> y) {
  if (gpu_) {
    quantise(ctx, /*measures=*/true, weight_source_, operand(kWeight, inputs_, outputs_));
  }
  rows_ = x.rows;
  const ops::Fp8Rows<T> rounded = operand(kInput, rows_, inputs_);
  quantise_operand(ctx, step, kInput, x, rounded);
  ops::fp8_linear<T>(ctx, rounded, weight(), options, y);
}

template <class T>
void Fp8Product<T>::backward(const Context& ctx, const StepInput& step, Rows<const T> dz,
                             const ops::LinearGradients<T>& gradients) {
  const ops::Fp8Rows<T> rounded = operand(kGradient, dz.rows, outputs_);
  quantise_operand(ctx, step, kGradient, dz, rounded);
  ops::fp8_linear_backward<T>(ctx, operand(kInput, rows_, inputs_), weight(), rounded, gradients);
}

template <class T>
std::size_t Fp8Product<T>::bytes() const {
  return kept_.bytes() + weight_rows_.bytes() + weight_columns_.bytes() +
         (packed_ ? packed_->bytes() : 0);
}

#define TGR_INSTANTIATE(T)      \
  template struct Fp8Shared<T>; \
  template class Fp8Product<T>;
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::model
