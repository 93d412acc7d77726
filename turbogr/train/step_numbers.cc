#include "turbogr/train/step_numbers.h"

#include "turbogr/core/check.h"

namespace turbogr::train {

StepNumbers::StepNumbers(const Context& ctx, std::int64_t losses, std::int64_t tables)
    : tables_(tables),
      late_(kRows + tables + losses),
      row_scale_(late_ + 2 * tables),
      values_(DType::kF64, {row_scale_ + kScale}, ctx.device()),
      on_host_(DType::kF64, {row_scale_},
               ctx.device() == Device::kCuda ? Device::kPinned : Device::kCpu),
      sent_(ctx) {
  static_assert(sizeof(ops::StepScale) == kScale * sizeof(double));
}

void StepNumbers::clear(const Context& ctx) { zero_bytes(ctx, values_.data(), values_.bytes()); }

void StepNumbers::send(const Context& ctx) {
  copy_bytes(ctx, on_host_.data(), values_.data(), on_host_.bytes());
  sent_.record(ctx);
}

StepNumbers::Known StepNumbers::wait(std::int64_t step) {
  try {
    sent_.wait();
  } catch (const Error& error) {
    detail::throw_error("step ", step, " or one queued behind it failed on the GPU: ", error.what(),
                        "; run with CUDA_LAUNCH_BLOCKING=1 to see which operator");
  }
  const View<const double, 1> known = on_host_.view<double, 1>();
  double late = 0;
  for (std::int64_t i = late_; i < row_scale_; ++i) late += known(i);
  return {*reinterpret_cast<const ops::StepScale*>(known.data), known(kDense), late};
}

}  // namespace turbogr::train
