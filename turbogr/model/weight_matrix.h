// A parameter matrix as products use it: the master copy rounded to T and packed, renewed after
// each update.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "turbogr/model/parameters.h"
#include "turbogr/ops/dense/linear.h"

namespace turbogr::model {

template <class T>
class WeightMatrix {
 public:
  // Registers a [inputs, outputs] parameter.
  WeightMatrix(ParameterSet<T>& parameters, ParameterSpec spec);

  // Rounds and packs the current values. Before the first product and after every update.
  void refresh(const Context& ctx, const ParameterSet<T>& parameters);

  // Where an update may write the rounded values itself, and spare the refresh; null where products
  // want another layout. Since the first refresh.
  T* rounded() { return packed_->plain().data; }

  const ops::PackedWeight<T>& packed() const { return *packed_; }
  int index() const { return index_; }
  View<Accum<T>, 2> gradient(ParameterSet<T>& parameters) const {
    return parameters.gradient(index_).template view<Accum<T>, 2>();
  }

 private:
  int index_;
  Tensor rounded_;  // bf16 on a CPU: elsewhere the master copy is packed as it is, or rounded there
  std::optional<ops::PackedWeight<T>> packed_;
};

}  // namespace turbogr::model
