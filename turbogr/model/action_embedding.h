// Action signals in the input: each token gets the sum of the rows of its set bits (clicked, liked,
// ...).
#pragma once

#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/model/model_options.h"
#include "turbogr/model/parameters.h"
#include "turbogr/model/step_input.h"

namespace turbogr::model {

template <class T>
class ActionEmbedding {
 public:
  // Registers an [options.actions, D] parameter; room for `capacity` tokens.
  ActionEmbedding(const ModelOptions& options, std::int64_t capacity, ParameterSet<T>& parameters);

  // Row i is the sum over the set bits of step.signals(i); the result stays until the next call.
  Rows<const T> forward(const Context& ctx, const ParameterSet<T>& parameters,
                        const StepInput& step);
  // Memory for the gradient of what forward gave, to be filled before backward.
  Rows<T> gradient_rows(std::int64_t tokens);
  // Adds to the parameter's gradient, token by token in order for each bit.
  void backward(const Context& ctx, ParameterSet<T>& parameters, const StepInput& step);

  std::size_t workspace_bytes(const Context& ctx) const;
  std::size_t bytes() const { return rows_.bytes() + drows_.bytes(); }

 private:
  void check(const StepInput& step) const;

  std::int64_t actions_;
  int table_;
  Tensor rows_, drows_;  // [N, D]
};

}  // namespace turbogr::model
