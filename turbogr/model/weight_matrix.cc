#include "turbogr/model/weight_matrix.h"

#include <type_traits>
#include <utility>
#include <vector>

#include "turbogr/core/host_memory.h"
#include "turbogr/ops/dense/convert.h"

namespace turbogr::model {

template <class T>
WeightMatrix<T>::WeightMatrix(ParameterSet<T>& parameters, ParameterSpec spec)
    : index_(parameters.add(std::move(spec))) {
  if constexpr (!std::is_same_v<T, Accum<T>>) {
    if (parameters.device() == Device::kCpu) {
      rounded_ = Tensor(dtype_of<T>(), parameters.value(index_).shape());
    }
  }
}

template <class T>
void WeightMatrix<T>::use_fp8(const Context& ctx, const ParameterSet<T>& parameters,
                              std::int64_t capacity, Fp8Shared<T>& shared) {
  const std::vector<std::int64_t>& shape = parameters.value(index_).shape();
  fp8_ = std::make_unique<Fp8Product<T>>(ctx, shape[0], shape[1], capacity, shared);
}

template <class T>
void WeightMatrix<T>::refresh(const Context& ctx, const ParameterSet<T>& parameters) {
  const View<const Accum<T>, 2> master = parameters.value(index_).template view<Accum<T>, 2>();
  if (!packed_) {
    packed_.emplace(ctx, master.shape[0], master.shape[1]);
    ctx.workspace().reserve(ops::linear_workspace_bytes<T>(ctx, *packed_));
  }
  if (plans_only()) return;  // there is nothing to pack, and where to has no memory
  if constexpr (std::is_same_v<T, Accum<T>>) {
    packed_->pack(ctx, master);
    if (fp8_) fp8_->take_weight(ctx, master);
  } else {
    const View<T, 2> plain = packed_->plain();
    const View<T, 2> rounded = plain.data != nullptr ? plain : rounded_.template view<T, 2>();
    ops::convert_values<T, Accum<T>>(ctx, {master.data, {master.size()}},
                                     {rounded.data, {rounded.size()}});
    if (plain.data == nullptr) packed_->pack(ctx, rounded);
    if (fp8_) fp8_->take_weight(ctx, rounded);
  }
}

template <class T>
void WeightMatrix<T>::multiply(const Context& ctx, const StepInput& step, Rows<const T> x,
                               const ops::LinearOptions<T>& options, Rows<T> y) const {
  if (fp8_ && step.training) {
    fp8_->forward(ctx, step, x, options, y);
  } else {
    ops::linear<T>(ctx, x, *packed_, options, y);
  }
}

template <class T>
void WeightMatrix<T>::multiply_backward(const Context& ctx, const StepInput& step, Rows<const T> x,
                                        Rows<const T> dz,
                                        const ops::LinearGradients<T>& gradients) const {
  if (!fp8_) return ops::linear_backward<T>(ctx, x, *packed_, dz, {}, gradients);
  fp8_->backward(ctx, step, dz, {.dx = gradients.dx, .dw = gradients.dw});
  if (gradients.db.data != nullptr) {
    ops::linear_backward<T>(ctx, x, *packed_, dz, {}, {.db = gradients.db});
  }
}

template class WeightMatrix<double>;
template class WeightMatrix<float>;
template class WeightMatrix<bf16>;

}  // namespace turbogr::model
