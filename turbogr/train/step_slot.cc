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
  const std::int64_t positives = std::min(num_items, options.accumulate * options.memory.capacity);
  compact = Tensor(dtype_of<T>(), {half ? positives : rows, width}, device);
  if (half) {
    half_rows = Tensor(DType::kF16, {rows, width}, device);
    half_scale = Tensor(DType::kF32, {rows}, device);
  }
  gradient = Tensor(DType::kF32, {rows, width}, device);
}

template <class T>
std::size_t StepSlot<T>::bytes() const {
  std::size_t total = compact.bytes() + half_rows.bytes() + half_scale.bytes() + gradient.bytes();
  for (const Tensor& ids : negative_ids) total += ids.bytes();
  return total;
}

template <class T>
std::size_t StepSlot<T>::bytes_of(const RetrievalOptions& options, std::int64_t num_items) {
  const auto elements = static_cast<std::size_t>(touched_capacity(options, num_items)) *
                        static_cast<std::size_t>(options.model.width);
  return elements * (sizeof(T) + sizeof(float)) +
         static_cast<std::size_t>(options.accumulate * negatives_a_batch(options)) *
             sizeof(std::int64_t);
}

template struct StepSlot<float>;
template struct StepSlot<bf16>;

}  // namespace turbogr::train
