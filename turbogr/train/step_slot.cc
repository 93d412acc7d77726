#include "turbogr/train/step_slot.h"

#include <algorithm>

#include "turbogr/train/retrieval_trainer.h"

namespace turbogr::train {

std::int64_t negatives_a_batch(const RetrievalOptions& options) {
  const NegativeOptions& negatives = options.negatives;
  return negatives.shared ? negatives.count : options.memory.capacity * negatives.count;
}

std::int64_t touched_capacity(const RetrievalOptions& options, std::int64_t num_items) {
  return std::min(num_items,
                  options.accumulate * (2 * options.memory.capacity + negatives_a_batch(options)));
}

namespace {

std::int64_t positives_capacity(const RetrievalOptions& options, std::int64_t num_items) {
  return std::min(num_items, options.accumulate * options.memory.capacity);
}

}  // namespace

template <class T>
StepSlot<T>::StepSlot(const Context& ctx, const RetrievalOptions& options, std::int64_t num_items)
    : touched(num_items) {
  const Device device = ctx.device();
  const std::int64_t rows = touched_capacity(options, num_items);
  const std::int64_t width = options.model.width;
  const bool half = options.negatives.half;
  for (std::int64_t batch = 0; batch < options.accumulate; ++batch) {
    negative_ids.emplace_back(DType::kI64, std::vector{negatives_a_batch(options)});
    num_negatives.push_back(0);
  }
  corrections = Tensor(DType::kF32, {rows});
  compact =
      Tensor(dtype_of<T>(), {half ? positives_capacity(options, num_items) : rows, width}, device);
  if (half) {
    half_rows = Tensor(DType::kF16, {rows, width}, device);
    half_scale = Tensor(DType::kF32, {rows}, device);
  }
  gradient = Tensor(DType::kF32, {rows, width}, device);
}

template <class T>
PlannedBytes StepSlot<T>::bytes_of(Device device, const RetrievalOptions& options,
                                   std::int64_t num_items) {
  const auto rows = static_cast<std::size_t>(touched_capacity(options, num_items));
  const auto width = static_cast<std::size_t>(options.model.width);
  const auto drawn = static_cast<std::size_t>(options.accumulate * negatives_a_batch(options));
  std::size_t full = rows;
  PlannedBytes bytes;
  if (options.negatives.half) {
    full = static_cast<std::size_t>(positives_capacity(options, num_items));
    bytes.add(device, rows * (width * sizeof(f16) + sizeof(float)));
  }
  bytes.add(device, full * width * sizeof(T) + rows * width * sizeof(float));
  bytes.host += TouchedRows::bytes_of(num_items) + drawn * sizeof(std::int64_t) +
                rows * sizeof(float);  // ids of negatives, corrections
  return bytes;
}

template struct StepSlot<float>;
template struct StepSlot<bf16>;

}  // namespace turbogr::train
