// What a trainer holds, for checkpoints, for messages and for whoever plans memory.
#include <algorithm>
#include <cmath>
#include <set>
#include <type_traits>
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

std::size_t padded(std::int64_t size, std::int64_t multiple) {
  return static_cast<std::size_t>((size + multiple - 1) / multiple * multiple);
}

// What a CPU's products take beside their operands, from measurements with oneDNN 2.6 and some
// room: code for each shape of a matrix, and descriptions of the products of each matrix.
constexpr bool kWithOneDnn = TGR_WITH_ONEDNN;
constexpr std::size_t kProductCodeBytes = kWithOneDnn ? 640 << 10 : 0;
constexpr std::size_t kProductBytes = kWithOneDnn ? 128 << 10 : 16 << 10;

// What products make of a matrix (model/weight_matrix.h), at most: a GPU's its values in T, a CPU's
// these and two layouts of padded blocks.
template <class T>
std::size_t weight_copies(const Context& ctx, const model::ParameterSpec& spec) {
  if (!spec.decay || spec.shape.size() != 2) return 0;
  const std::int64_t inputs = spec.shape[0], outputs = spec.shape[1];
  const std::size_t plain = static_cast<std::size_t>(inputs * outputs) * sizeof(T);
  const std::size_t rounded = std::is_same_v<T, float> ? 0 : plain;
  if (ctx.device() == Device::kCuda) return plain;
  const bool widened =
      std::is_same_v<T, bf16> && (!kWithOneDnn || ctx.simd() < SimdLevel::kAvx512Bf16);
  const std::size_t element = widened ? sizeof(float) : sizeof(T);
  return kProductBytes + rounded +
         element *
             (padded(inputs, 32) * padded(outputs, 64) + padded(outputs, 32) * padded(inputs, 64));
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
PlannedBytes RetrievalTrainer<T>::planned_bytes(const Context& ctx) const {
  const Device device = ctx.device();
  PlannedBytes bytes;
  bytes.add(device, ctx.workspace().capacity() + model_.activation_bytes());
  if (&ctx.host() != &ctx) bytes.host += ctx.host().workspace().capacity();
  for (const Tensor* tensor : {&rows_, &dquery_, &loss_, &log_sum_exp_, &dloss_, &results_}) {
    bytes.add(*tensor);
  }
  const Device table = table_device(ctx, options_);
  bytes.add(table, table_.bytes() + half_table_.bytes());
  bytes.host += sampler_.bytes() + token_order_.bytes();
  bytes += feed_.bytes();
  if (slot_) bytes += StepSlot<T>::bytes_of(device, options_, num_items_);
  if (prefetch_) bytes += prefetch_->bytes();
  std::set<std::vector<std::int64_t>> shapes;
  for (int i = 0; i < model_.parameters().size(); ++i) {
    const Tensor& value = model_.parameters().value(i);
    bytes.add(device, 4 * value.bytes());  // and its gradient, and two moments
    const std::size_t copies = weight_copies<T>(ctx, model_.parameters().spec(i));
    bytes.add(device, copies);
    if (copies > 0) shapes.insert(value.shape());
  }
  if (device == Device::kCpu) bytes.host += shapes.size() * kProductCodeBytes;
  return bytes;
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
