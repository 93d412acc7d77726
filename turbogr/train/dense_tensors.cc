#include "turbogr/train/dense_tensors.h"

#include <algorithm>
#include <cmath>

#include "turbogr/core/device_memory.h"

namespace turbogr::train {
namespace {

double largest_magnitude(const Tensor& tensor) {
  const auto* values = reinterpret_cast<const float*>(tensor.data());
  double largest = 0;
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    const double magnitude = std::abs(static_cast<double>(values[i]));
    if (std::isnan(magnitude)) return magnitude;
    largest = std::max(largest, magnitude);
  }
  return largest;
}

}  // namespace

template <class T>
std::vector<NamedTensor> weight_tensors(model::ParameterSet<T>& parameters) {
  std::vector<NamedTensor> tensors;
  tensors.reserve(static_cast<std::size_t>(parameters.size()));
  for (int i = 0; i < parameters.size(); ++i) {
    tensors.push_back(named(parameters.spec(i).name, parameters.value(i)));
  }
  return tensors;
}

template <class T>
std::vector<NamedTensor> moment_tensors(const model::ParameterSet<T>& parameters,
                                        std::span<Tensor> first_moments,
                                        std::span<Tensor> second_moments) {
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters.spec(i).name;
    const auto at = static_cast<std::size_t>(i);
    tensors.push_back(named(name + ".first_moment", first_moments[at]));
    tensors.push_back(named(name + ".second_moment", second_moments[at]));
  }
  return tensors;
}

template <class T>
std::vector<LargestTensor> largest_tensors(const Context& ctx,
                                           const model::ParameterSet<T>& parameters) {
  std::vector<LargestTensor> all;
  for (int i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters.spec(i).name;
    all.push_back({name, largest_magnitude(to_host(ctx, parameters.value(i)))});
    all.push_back({"gradient of " + name, largest_magnitude(to_host(ctx, parameters.gradient(i)))});
  }
  std::sort(all.begin(), all.end(), [](const LargestTensor& a, const LargestTensor& b) {
    const bool a_bad = !std::isfinite(a.largest);
    const bool b_bad = !std::isfinite(b.largest);
    return a_bad != b_bad ? a_bad : (!a_bad && a.largest > b.largest);
  });
  return all;
}

template std::vector<NamedTensor> weight_tensors(model::ParameterSet<float>&);
template std::vector<NamedTensor> weight_tensors(model::ParameterSet<bf16>&);
template std::vector<NamedTensor> moment_tensors(const model::ParameterSet<float>&,
                                                 std::span<Tensor>, std::span<Tensor>);
template std::vector<NamedTensor> moment_tensors(const model::ParameterSet<bf16>&,
                                                 std::span<Tensor>, std::span<Tensor>);
template std::vector<LargestTensor> largest_tensors(const Context&,
                                                    const model::ParameterSet<float>&);
template std::vector<LargestTensor> largest_tensors(const Context&,
                                                    const model::ParameterSet<bf16>&);

}  // namespace turbogr::train
