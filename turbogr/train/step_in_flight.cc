#include "turbogr/train/step_in_flight.h"

#include <algorithm>

#include "turbogr/model/buffers.h"

namespace turbogr::train {

using model::first_rows;
using model::first_values;

template <class T>
StepRowMemory<T>::StepRowMemory(const Context& ctx, const RetrievalOptions& options,
                                std::int64_t num_items) {
  const Device device = ctx.device();
  const std::int64_t most = touched_capacity(options, num_items);
  const std::int64_t width = options.model.width;
  const bool half = options.negatives.half;
  // Beside f16 negatives, inputs and targets.
  const std::int64_t full =
      half ? std::min(num_items, 2 * options.accumulate * options.memory.capacity) : most;
  rows = Tensor(dtype_of<T>(), {full, width}, device);
  if (half) {
    half_rows = Tensor(DType::kF16, {most, width}, device);
    half_scale = Tensor(DType::kF32, {most}, device);
  }
  gradient = Tensor(DType::kF32, {most, width}, device);
}

template <class T>
PlannedBytes StepRowMemory<T>::bytes() const {
  PlannedBytes bytes;
  for (const Tensor* tensor : {&rows, &half_rows, &half_scale, &gradient}) bytes.add(*tensor);
  return bytes;
}

StepNumbers::StepNumbers(const Context& ctx, std::int64_t parts)
    : late_(kLosses + parts),
      values_(DType::kF64, {late_ + 2}, ctx.device()),
      on_host_(DType::kF64, {late_ + 2},
               ctx.device() == Device::kCuda ? Device::kPinned : Device::kCpu),
      sent_(ctx) {}

void StepNumbers::clear(const Context& ctx) { zero_bytes(ctx, values_.data(), values_.bytes()); }

void StepNumbers::send(const Context& ctx) {
  copy_bytes(ctx, on_host_.data(), values_.data(), values_.bytes());
  sent_.record(ctx);
}

StepNumbers::Known StepNumbers::wait() {
  sent_.wait();
  const View<const double, 1> known = on_host_.view<double, 1>();
  return {*reinterpret_cast<const ops::StepScale*>(known.data), known(kDense),
          known(late_) + known(late_ + 1)};
}

template <class T>
StepInFlight<T>::StepInFlight(const Context& ctx, const RetrievalOptions& options,
                              std::int64_t num_items, const embedding::RowSource<T>& source)
    : numbers(ctx, options.accumulate) {
  const std::int64_t most = touched_capacity(options, num_items);
  touched.emplace_back(num_items, most);
  for (std::int64_t batch = 0; batch < options.accumulate; ++batch) {
    negative_ids.emplace_back(DType::kI64, std::vector{negatives_a_batch(options)});
    num_negatives.push_back(0);
  }
  inputs.reserve(static_cast<std::size_t>(options.accumulate));
  corrections = Tensor(DType::kF32, {most});
  request = source.make_request(ctx, {&most, 1});
}

template <class T>
PlannedBytes StepInFlight<T>::bytes() const {
  PlannedBytes bytes = request->bytes();
  for (const Tensor& tensor : negative_ids) bytes.add(tensor);
  bytes.add(corrections);
  bytes.host += embedding::TouchedRows::bytes_of(touched[0].rows(), corrections.size());
  return bytes;
}

template <class T>
embedding::StepRows<T> StepInFlight<T>::rows() const {
  const std::int64_t all = num_rows();
  if (memory->half_rows.size() == 0) return {first_rows<T>(memory->rows, all), {}};
  return {first_rows<T>(memory->rows, touched[0].num_first()),
          {first_rows<f16>(memory->half_rows, all), first_values<float>(memory->half_scale, all)}};
}

template <class T>
Rows<float> StepInFlight<T>::gradient() const {
  return first_rows<float>(memory->gradient, num_rows());
}

template struct StepRowMemory<float>;
template struct StepRowMemory<bf16>;
template struct StepInFlight<float>;
template struct StepInFlight<bf16>;

}  // namespace turbogr::train
