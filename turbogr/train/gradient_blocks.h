// A model's dense gradients in the order in which a backward pass makes them final: layer by layer,
// the last one first; what is left comes at the end.
#pragma once

#include <cstdint>
#include <vector>

#include "turbogr/train/dense_reducer.h"

namespace turbogr::train {

struct GradientBlocks {
  std::vector<GradientBlock> blocks;
  std::vector<std::int64_t> by_layers;  // how many are final after so many layers
};

template <class Model>  // has parameters() and layer_parameters(layer)
GradientBlocks gradient_blocks(Model& model, std::int64_t layers) {
  auto& parameters = model.parameters();
  GradientBlocks all;
  std::vector<bool> taken(static_cast<std::size_t>(parameters.size()), false);
  const auto add = [&](int index) {
    Tensor& gradient = parameters.gradient(index);
    all.blocks.push_back({reinterpret_cast<float*>(gradient.data()), gradient.size()});
    taken[static_cast<std::size_t>(index)] = true;
  };
  all.by_layers.push_back(0);
  for (std::int64_t layer = layers; layer-- > 0;) {
    const auto range = model.layer_parameters(layer);
    for (int index = range.first; index < range.last; ++index) add(index);
    all.by_layers.push_back(std::ssize(all.blocks));
  }
  for (int index = 0; index < parameters.size(); ++index) {
    if (!taken[static_cast<std::size_t>(index)]) add(index);
  }
  return all;
}

}  // namespace turbogr::train
