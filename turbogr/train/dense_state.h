// The dense weights of a model with their gradients and AdamW's moments, as one list that an update
// goes over.
#pragma once

#include <cstddef>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/model/parameters.h"
#include "turbogr/ops/rows/update.h"

namespace turbogr::train {

struct DenseState {
  std::vector<Tensor> first_moments, second_moments;  // of each parameter
  ops::UpdateSlices slices;
};

struct DenseStateOptions {
  bool decay_vectors = false;  // biases and norms decay, too
  std::vector<bf16*> rounded;  // of each parameter, kept by the update; null or empty: none
};

// The parameters stay where they are as long as the state is used.
template <class T>
DenseState make_dense_state(const Context& ctx, model::ParameterSet<T>& parameters,
                            const DenseStateOptions& options);

}  // namespace turbogr::train
