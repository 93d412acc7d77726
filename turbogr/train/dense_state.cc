#include "turbogr/train/dense_state.h"

#include <utility>

namespace turbogr::train {
namespace {

float* values_of(Tensor& tensor) { return reinterpret_cast<float*>(tensor.data()); }

}  // namespace

template <class T>
DenseState make_dense_state(const Context& ctx, model::ParameterSet<T>& parameters,
                            const DenseStateOptions& options) {
  DenseState state;
  std::vector<ops::UpdateSlice> slices;
  for (int i = 0; i < parameters.size(); ++i) {
    Tensor& value = parameters.value(i);
    state.first_moments.emplace_back(DType::kF32, value.shape(), ctx.device());
    state.second_moments.emplace_back(DType::kF32, value.shape(), ctx.device());
    const bool decays = options.decay_vectors || parameters.spec(i).decay;
    slices.push_back(
        {values_of(value), values_of(parameters.gradient(i)), values_of(state.first_moments.back()),
         values_of(state.second_moments.back()), value.size(), decays ? 1.0 : 0.0,
         options.rounded.empty() ? nullptr : options.rounded[static_cast<std::size_t>(i)]});
  }
  state.slices = ops::UpdateSlices(ctx, std::move(slices));
  return state;
}

template DenseState make_dense_state<float>(const Context&, model::ParameterSet<float>&,
                                            const DenseStateOptions&);
template DenseState make_dense_state<bf16>(const Context&, model::ParameterSet<bf16>&,
                                           const DenseStateOptions&);

}  // namespace turbogr::train
