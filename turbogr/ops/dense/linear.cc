#include "turbogr/ops/dense/linear.h"

#include "turbogr/ops/checks.h"
#include "turbogr/ops/dense/linear_kernels.h"
#include "turbogr/ops/dense/linear_packed.h"
#include "turbogr/ops/dense/small_weight.h"

namespace turbogr::ops {

template <class T>
PackedWeight<T>::PackedWeight(const Context& ctx, std::int64_t inputs, std::int64_t outputs)
    : state_(std::make_unique<State>()) {
  TGR_CHECK(inputs > 0 && outputs > 0, "linear: a weight of [", inputs, ", ", outputs,
            "]; both sizes must be at least 1");
  State& state = *state_;
  state.inputs = inputs;
  state.outputs = outputs;
  state.simd = ctx.simd();
  state.device = ctx.device();
  if (std::is_same_v<T, double> || ctx.device() == Device::kCuda) {
    state.forward = Tensor(dtype_of<T>(), {inputs, outputs}, ctx.device());
    return;
  }
  const auto bytes_of = [](std::size_t bytes) {
    return Tensor(DType::kU8, {static_cast<std::int64_t>(bytes)});
  };
  state.small = std::is_same_v<T, float> && is_small_weight(inputs, outputs);
  if (state.small) {
    state.forward = bytes_of(small_weight_bytes(inputs, outputs));
    state.transposed = bytes_of(small_weight_bytes(outputs, inputs));
    return;
  }
  if constexpr (!std::is_same_v<T, double>) {
    const bool widened = std::is_same_v<T, bf16> && ctx.simd() < SimdLevel::kAvx512Bf16;
    state.compute = widened ? DType::kF32 : dtype_of<T>();
    state.forward_product =
        std::make_unique<PackedProduct>(dtype_of<T>(), state.compute, inputs, outputs, outputs, 1);
    state.transposed_product =
        std::make_unique<PackedProduct>(dtype_of<T>(), state.compute, outputs, inputs, 1, outputs);
    state.gradient_product = std::make_unique<GradientProduct>(state.compute, inputs, outputs);
    state.forward = bytes_of(state.forward_product->packed_bytes());
    state.transposed = bytes_of(state.transposed_product->packed_bytes());
  }
}

template <class T>
PackedWeight<T>::~PackedWeight() = default;
template <class T>
PackedWeight<T>::PackedWeight(PackedWeight&&) noexcept = default;
template <class T>
PackedWeight<T>& PackedWeight<T>::operator=(PackedWeight&&) noexcept = default;

template <class T>
std::int64_t PackedWeight<T>::inputs() const {
  return state_->inputs;
}
template <class T>
std::int64_t PackedWeight<T>::outputs() const {
  return state_->outputs;
}
template <class T>
std::size_t PackedWeight<T>::bytes() const {
  return state_->forward.bytes() + state_->transposed.bytes();
}

template <class T>
void PackedWeight<T>::pack(const Context& ctx, View<const T, 2> w) {
  check_rows("linear", "w", Rows<const T>(w), state_->inputs, state_->outputs);
  on_device(ctx, [&](auto device) { kernels::pack_weight<T>(device, *state_, w); });
  state_->packed = true;
}

template <class T>
View<T, 2> PackedWeight<T>::plain() {
  if (state_->device != Device::kCuda) return {};
  state_->packed = true;
  return state_->forward.template view<T, 2>();
}

namespace {

template <class T>
void check_weight(const char* op, const Context& ctx, const PackedWeight<T>& weight) {
  TGR_CHECK(weight.state().packed, op, ": the weight holds no values yet; call pack first");
  TGR_CHECK(weight.state().device == ctx.device(), op, ": the weight is on ",
            name_of(weight.state().device), " and the context runs on ", name_of(ctx.device()),
            "; make both from one context");
  TGR_CHECK(weight.state().simd == ctx.simd(), op, ": the weight was packed for ",
            name_of(weight.state().simd), " and the context runs ", name_of(ctx.simd()),
            "; make both from one context");
}

}  // namespace

template <class T>
void linear(const Context& ctx, Rows<const T> x, const PackedWeight<T>& weight,
            const LinearOptions<T>& options, Rows<T> y, Rows<T> z) {
  check_weight("linear", ctx, weight);
  check_rows("linear", "x", x, x.rows, weight.inputs());
  check_rows("linear", "y", y, x.rows, weight.outputs());
  if (options.bias.data != nullptr) {
    check_vector("linear", "bias", options.bias, weight.outputs());
  }
  if (options.residual.data != nullptr) {
    check_rows("linear", "residual", options.residual, x.rows, weight.outputs());
  }
  if (z.data != nullptr) check_rows("linear", "z", z, x.rows, weight.outputs());
  if (x.rows == 0) return;
  const SectionScope section = section_scope(ctx, Section::kGemm);
  on_device(ctx,
            [&](auto device) { kernels::linear<T>(device, x, weight.state(), options, y, z); });
}

template <class T>
std::size_t linear_workspace_bytes(const Context& ctx, const PackedWeight<T>& weight) {
  if constexpr (kWithCuda) {
    if (ctx.device() == Device::kCuda) {
      return kernels::linear_workspace_bytes_cuda<T>(weight.outputs());
    }
  }
  return kernels::linear_workspace_bytes<T>(weight.state(), ctx.threads());
}

template <class T>
void linear_backward(const Context& ctx, Rows<const T> x, const PackedWeight<T>& weight,
                     Rows<const T> dy, const LinearBackwardOptions<T>& options,
                     const LinearGradients<T>& gradients) {
  check_weight("linear_backward", ctx, weight);
  check_rows("linear_backward", "x", x, x.rows, weight.inputs());
  check_rows("linear_backward", "dy", dy, x.rows, weight.outputs());
  if (options.activation != Activation::kNone) {
    check_rows("linear_backward", "z", options.z, x.rows, weight.outputs());
  }
  if (gradients.dx.data != nullptr) {
    check_rows("linear_backward", "dx", gradients.dx, x.rows, weight.inputs());
  }
  if (gradients.dw.data != nullptr) {
    check_rows("linear_backward", "dw", Rows<Accum<T>>(gradients.dw), weight.inputs(),
               weight.outputs());
  }
  if (gradients.db.data != nullptr) {
    check_vector("linear_backward", "db", gradients.db, weight.outputs());
  }
  if (x.rows == 0) return;
  const SectionScope section = section_scope(ctx, Section::kGemm);
  on_device(ctx, [&](auto device) {
    kernels::linear_backward<T>(device, x, weight.state(), dy, options, gradients);
  });
}

template <class T>
std::size_t linear_backward_workspace_bytes(const Context& ctx, const PackedWeight<T>& weight,
                                            std::int64_t rows) {
  if constexpr (kWithCuda) {
    if (ctx.device() == Device::kCuda) {
      return kernels::linear_backward_workspace_bytes_cuda<T>(weight.outputs(), rows);
    }
  }
  return kernels::linear_backward_workspace_bytes<T>(weight.state(), rows, ctx.threads());
}

#define TGR_INSTANTIATE(T)                                                                        \
  template class PackedWeight<T>;                                                                 \
  template void linear<T>(const Context&, Rows<const T>, const PackedWeight<T>&,                  \
                          const LinearOptions<T>&, Rows<T>, Rows<T>);                             \
  template std::size_t linear_workspace_bytes<T>(const Context&, const PackedWeight<T>&);         \
  template void linear_backward<T>(const Context&, Rows<const T>, const PackedWeight<T>&,         \
                                   Rows<const T>, const LinearBackwardOptions<T>&,                \
                                   const LinearGradients<T>&);                                    \
  template std::size_t linear_backward_workspace_bytes<T>(const Context&, const PackedWeight<T>&, \
                                                          std::int64_t);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
