// The dense weights of a model by name: for checkpoints, and for the message when numbers blow up.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/named_tensor.h"
#include "turbogr/core/tensor.h"
#include "turbogr/model/parameters.h"

namespace turbogr::train {

template <class T>
std::vector<NamedTensor> weight_tensors(model::ParameterSet<T>& parameters);
// AdamW's moments of each parameter.
template <class T>
std::vector<NamedTensor> moment_tensors(const model::ParameterSet<T>& parameters,
                                        std::span<Tensor> first_moments,
                                        std::span<Tensor> second_moments);

struct LargestTensor {
  std::string name;
  double largest;  // magnitude; not finite when any element is not
};
// Gradients and weights by falling magnitude, those that are not finite first.
template <class T>
std::vector<LargestTensor> largest_tensors(const Context& ctx,
                                           const model::ParameterSet<T>& parameters);

}  // namespace turbogr::train
