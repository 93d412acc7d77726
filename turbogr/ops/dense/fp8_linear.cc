#include "turbogr/ops/dense/fp8_linear.h"

#include <type_traits>

#include "turbogr/ops/checks.h"
#include "turbogr/ops/dense/fp8_kernels.h"

namespace turbogr::ops {
namespace {

template <class T>
Rows<const T> rounded_rows(const Fp8Rows<T>& x) {
  return {x.values, x.rows, x.cols, x.cols};
}

// A GPU's half is bf16's alone, and only where there is a GPU.
template <class T, class Body>
void on_gpu_with_fp8(const Context& ctx, const char* op, Body&& body) {
  if constexpr (kWithCuda && std::is_same_v<T, bf16>) {
    on_device(ctx, [&](auto device) {
      if constexpr (std::is_same_v<decltype(device), Cuda>) body(device);
    });
  } else {
    detail::throw_error(op, ": numbers of ", name_of(dtype_of<T>()), " on ", name_of(ctx.device()),
                        "; fp8 on a GPU is bf16's");
  }
}

template <class T>
void check_fp8_weight(const char* op, const Context& ctx, const Fp8Rows<T>& x,
                      const Fp8Weight<T>& weight) {
  const Fp8Rows<T>& w = weight.values;
  TGR_CHECK(x.cols == w.rows, op, ": x has ", x.cols, " columns for a weight of [", w.rows, ", ",
            w.cols, "]");
  if (ctx.device() == Device::kCpu) {
    TGR_CHECK(weight.packed != nullptr, op, ": on a CPU the weight must be packed, too");
    return;
  }
  TGR_CHECK(w.rows % 16 == 0 && w.cols % 16 == 0, op, ": a weight of [", w.rows, ", ", w.cols,
            "]; fp8 products on a GPU need multiples of 16: choose other widths, or bf16");
}

}  // namespace

template <class T>
void fp8_linear(const Context& ctx, const Fp8Rows<T>& x, const Fp8Weight<T>& weight,
                const LinearOptions<T>& options, Rows<T> y) {
  check_fp8_weight("fp8_linear", ctx, x, weight);
  TGR_CHECK(options.activation == Activation::kNone,
            "fp8_linear: an activation; apply it to the result");
  if (ctx.device() == Device::kCpu) {
    return linear<T>(ctx, rounded_rows(x), *weight.packed, options, y);
  }
  check_rows("fp8_linear", "y", y, x.rows, weight.values.cols);
  if (x.rows == 0) return;
  const SectionScope section = section_scope(ctx, Section::kGemm);
  on_gpu_with_fp8<T>(ctx, "fp8_linear", [&](auto device) {
    kernels::fp8_linear(device, x, weight.values, options, y);
  });
}

template <class T>
void fp8_linear_backward(const Context& ctx, const Fp8Rows<T>& x, const Fp8Weight<T>& weight,
                         const Fp8Rows<T>& dz, const LinearGradients<T>& gradients) {
  check_fp8_weight("fp8_linear_backward", ctx, x, weight);
  TGR_CHECK(dz.rows == x.rows && dz.cols == weight.values.cols, "fp8_linear_backward: dz is [",
            dz.rows, ", ", dz.cols, "]; wanted [", x.rows, ", ", weight.values.cols, "]");
  TGR_CHECK(gradients.db.data == nullptr,
            "fp8_linear_backward: db is asked for; linear_backward makes it");
  if (ctx.device() == Device::kCpu) {
    return linear_backward<T>(ctx, rounded_rows(x), *weight.packed, rounded_rows(dz), {},
                              gradients);
  }
  if (x.rows == 0) return;
  const SectionScope section = section_scope(ctx, Section::kGemm);
  on_gpu_with_fp8<T>(ctx, "fp8_linear_backward", [&](auto device) {
    kernels::fp8_linear_backward(device, x, weight.values, dz, gradients);
  });
}

#define TGR_INSTANTIATE(T)                                                                     \
  template void fp8_linear<T>(const Context&, const Fp8Rows<T>&, const Fp8Weight<T>&,          \
                              const LinearOptions<T>&, Rows<T>);                               \
  template void fp8_linear_backward<T>(const Context&, const Fp8Rows<T>&, const Fp8Weight<T>&, \
                                       const Fp8Rows<T>&, const LinearGradients<T>&);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
