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
  const std::int64_t features = most_feature_rows(options, num_items);
  rows = Tensor(dtype_of<T>(), {full + features, width}, device);
  if (half) {
    half_rows = Tensor(DType::kF16, {most, width}, device);
    half_scale = Tensor(DType::kF32, {most}, device);
  }
  gradient = Tensor(DType::kF32, {most + features, width}, device);
}

template <class T>
PlannedBytes StepRowMemory<T>::bytes() const {
  PlannedBytes bytes;
  for (const Tensor* tensor : {&rows, &half_rows, &half_scale, &gradient}) bytes.add(*tensor);
  return bytes;
}

template <class T>
StepInFlight<T>::StepInFlight(const Context& ctx, const RetrievalOptions& options,
                              std::int64_t num_items, const embedding::RowSource<T>& source)
    : Flight(ctx, options.accumulate, 1 + std::ssize(options.features.tables)) {
  std::vector<std::int64_t> most = {touched_capacity(options, num_items)};
  touched.emplace_back(num_items, most[0]);
  if (!options.features.empty()) {
    const eval::FeatureSize size = feature_size(options, num_items);
    feature_inputs = std::make_unique<eval::FeatureInputs>(options.features, size);
    feature_rows = std::make_unique<model::FeatureRows>(
        ctx, options.features.table_rows(), eval::feature_lists(options.features, size));
    ctx.workspace().reserve(feature_rows->workspace_bytes(ctx, options.model.width));
    for (std::size_t t = 0; t < feature_rows->num_tables(); ++t) {
      most.push_back(feature_rows->most_ids(t));
      touched.emplace_back(options.features.tables[t].rows, most.back());
    }
  }
  rows_.resize(touched.size());
  gradients_.resize(touched.size());
  for (std::int64_t batch = 0; batch < options.accumulate; ++batch) {
    negative_ids.emplace_back(DType::kI64, std::vector{negatives_a_batch(options)});
    num_negatives.push_back(0);
  }
  inputs.reserve(static_cast<std::size_t>(options.accumulate));
  corrections = Tensor(DType::kF32, {most[0]});
  request = source.make_request(ctx, most);
}

template <class T>
PlannedBytes StepInFlight<T>::bytes() const {
  PlannedBytes bytes = request->bytes();
  for (const Tensor& tensor : negative_ids) bytes.add(tensor);
  bytes.add(corrections);
  bytes.host += embedding::TouchedRows::bytes_of(touched[0].rows(), corrections.size());
  if (!feature_rows) return bytes;
  bytes += feature_rows->bytes();
  bytes.host += feature_inputs->bytes();
  for (std::size_t t = 0; t < feature_rows->num_tables(); ++t) {
    bytes.host +=
        embedding::TouchedRows::bytes_of(touched[1 + t].rows(), feature_rows->most_ids(t));
  }
  return bytes;
}

template <class T>
embedding::StepRows<T> StepInFlight<T>::item_rows() const {
  const std::int64_t all = num_rows();
  if (memory->half_rows.size() == 0) return {first_rows<T>(memory->rows, all), {}};
  return {first_rows<T>(memory->rows, touched[0].num_first()),
          {first_rows<f16>(memory->half_rows, all), first_values<float>(memory->half_scale, all)}};
}

template <class T>
Rows<T> StepInFlight<T>::features() const {
  const std::int64_t items = item_rows().rows.rows, count = num_feature_rows();
  const Rows<T> all = first_rows<T>(memory->rows, items + count);
  return {all.row(items), count, all.cols, all.stride};
}

template <class T>
Rows<float> StepInFlight<T>::item_gradient() const {
  return first_rows<float>(memory->gradient, num_rows());
}

template <class T>
Rows<float> StepInFlight<T>::feature_gradient() const {
  const Rows<float> all = gradient();
  return {all.row(num_rows()), num_feature_rows(), all.cols, all.stride};
}

template <class T>
Rows<float> StepInFlight<T>::gradient() const {
  return first_rows<float>(memory->gradient, num_rows() + num_feature_rows());
}

template <class T>
std::span<const embedding::StepRows<T>> StepInFlight<T>::rows() {
  rows_[0] = item_rows();
  for (std::size_t t = 1; t < rows_.size(); ++t) {
    rows_[t] = {feature_rows->part_of(t - 1, features()), {}};
  }
  return rows_;
}

template <class T>
std::span<const Rows<const float>> StepInFlight<T>::gradients() {
  gradients_[0] = item_gradient();
  for (std::size_t t = 1; t < gradients_.size(); ++t) {
    gradients_[t] = feature_rows->part_of(t - 1, feature_gradient());
  }
  return gradients_;
}

template struct StepRowMemory<float>;
template struct StepRowMemory<bf16>;
template struct StepInFlight<float>;
template struct StepInFlight<bf16>;

}  // namespace turbogr::train
