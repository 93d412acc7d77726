// What a trainer holds, for checkpoints, for messages and for whoever plans memory.
#include <algorithm>
#include <cmath>
#include <utility>

#include "turbogr/train/retrieval_trainer.h"

namespace turbogr::train {
namespace {

double largest_magnitude(const Tensor& tensor) {
  const auto* values = reinterpret_cast<const float*>(tensor.data());
  double largest = 0;
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    const double magnitude = std::abs(static_cast<double>(values[i]));
    if (!(magnitude <= largest)) largest = magnitude;  // a NaN sticks
  }
  return largest;
}

}  // namespace

template <class T>
std::vector<NamedTensor> RetrievalTrainer<T>::model_tensors() {
  std::vector<NamedTensor> tensors = {named("items", table_.weight_tensor())};
  for (int i = 0; i < model_.parameters().size(); ++i) {
    tensors.push_back(named(model_.parameters().spec(i).name, model_.parameters().value(i)));
  }
  return tensors;
}

template <class T>
std::vector<NamedTensor> RetrievalTrainer<T>::optimiser_tensors() {
  std::vector<NamedTensor> tensors;
  if (table_.first_moment().size() > 0) {
    tensors.push_back(named("items.first_moment", table_.first_moment()));
  }
  if (table_.second_moment().size() > 0) {
    tensors.push_back(named("items.second_moment", table_.second_moment()));
  }
  for (int i = 0; i < model_.parameters().size(); ++i) {
    const std::string& name = model_.parameters().spec(i).name;
    const auto at = static_cast<std::size_t>(i);
    tensors.push_back(named(name + ".first_moment", first_moments_[at]));
    tensors.push_back(named(name + ".second_moment", second_moments_[at]));
  }
  return tensors;
}

template <class T>
std::vector<typename RetrievalTrainer<T>::LargestTensor> RetrievalTrainer<T>::largest_tensors(
    const Context& ctx) const {
  std::vector<LargestTensor> all;
  for (int i = 0; i < model_.parameters().size(); ++i) {
    const std::string& name = model_.parameters().spec(i).name;
    all.push_back({name, largest_magnitude(to_host(ctx, model_.parameters().value(i)))});
    all.push_back(
        {"gradient of " + name, largest_magnitude(to_host(ctx, model_.parameters().gradient(i)))});
  }
  // Not finite first, then by size.
  std::sort(all.begin(), all.end(), [](const LargestTensor& a, const LargestTensor& b) {
    const bool a_bad = !std::isfinite(a.largest);
    const bool b_bad = !std::isfinite(b.largest);
    return a_bad != b_bad ? a_bad : (!a_bad && a.largest > b.largest);
  });
  return all;
}

template <class T>
std::size_t RetrievalTrainer<T>::planned_bytes(const Context& ctx) const {
  std::size_t total = ctx.workspace().capacity() + model_.activation_bytes() + rows_.bytes() +
                      dquery_.bytes() + half_table_.bytes() + sampler_.bytes() +
                      feed_.device_bytes() + (slot_ ? slot_->bytes() : 0) +
                      (prefetch_ ? prefetch_->device_bytes() + prefetch_->host_bytes() : 0);
  for (const Tensor& moment : first_moments_)
    total += 4 * moment.bytes();  // and weights, gradients
  return total + table_.bytes();
}

template <class T>
typename RetrievalTrainer<T>::LinkBytes RetrievalTrainer<T>::link_bytes() const {
  if (prefetch_ == nullptr) return {};
  const auto width = static_cast<double>(table_.width());
  // An update reads and writes weights and, of AdamW, two moments.
  const double state = options_.table_optimiser == embedding::SparseOptimiser::kAdamW ? 3 * 4 : 4;
  const double updates = rows_updated_ * width * state;
  return {static_cast<double>(prefetch_->rows_sent()) * width * sizeof(T) + updates, updates};
}

template class RetrievalTrainer<float>;
template class RetrievalTrainer<bf16>;

}  // namespace turbogr::train
