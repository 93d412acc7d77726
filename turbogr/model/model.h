// The dense model: item rows in, one vector a token out, and back. Item rows come from and go to
// the caller (a model sees rows, not tables); the loss is the caller's too.
//
//   Model<float> model(ctx, options, {.capacity = 65536});
//   model.initialise(ctx, seed);
//   Rows<const float> out = model.forward(ctx, step, rows);
//   model.backward(ctx, step, dout, drows);            // adds to model.parameters()' gradients
//   ... update the parameters ...
//   model.refresh(ctx);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/model/action_embedding.h"
#include "turbogr/model/layer_stack.h"
#include "turbogr/model/model_options.h"
#include "turbogr/model/parameters.h"
#include "turbogr/model/step_input.h"

namespace turbogr::model {

template <class T>
class Model {
 public:
  // Plans all memory, the context's workspace too; a step allocates nothing.
  Model(const Context& ctx, const ModelOptions& options, const ModelMemory& memory);

  const ModelOptions& options() const { return options_; }
  ParameterSet<T>& parameters() { return parameters_; }
  const ParameterSet<T>& parameters() const { return parameters_; }

  void initialise(const Context& ctx, std::uint64_t seed);
  void refresh(const Context& ctx);  // after every change of the parameters
  // Of each parameter, where the model keeps it rounded to T, element by element: an update that
  // writes there too needs no refresh. Null where it keeps none; empty where a refresh is needed
  // whatever the update writes.
  std::vector<T*> rounded_parameters();
  // Of fp8 products, which follow the steps before: part of what a run goes on from. Or null.
  Tensor* fp8_scales() { return stack_.fp8_scales(); }

  // rows [N, D], N at most the capacity. The result stays until the next forward.
  Rows<const T> forward(const Context& ctx, const StepInput& step, Rows<const T> rows);
  // Of the last forward with the same step. Overwrites drows; adds to the parameters' gradients.
  // `ready`, when given, hears after each layer how many, from the last one on, have their
  // gradients.
  void backward(const Context& ctx, const StepInput& step, Rows<const T> dout, Rows<T> drows,
                const std::function<void(std::int64_t layers)>& ready = {});

  // Which parameters are a layer's own.
  typename LayerStack<T>::Range layer_parameters(std::int64_t layer) const {
    return stack_.layer_parameters(layer);
  }

  std::size_t activation_bytes() const;
  std::size_t workspace_bytes(const Context& ctx) const;

 private:
  int add_position();
  void check_step(const StepInput& step, Rows<const T> rows) const;
  View<const T, 2> position_rows() const;

  ModelOptions options_;
  ParameterSet<T> parameters_;
  int position_;
  Tensor position_rounded_;  // bf16 only
  std::unique_ptr<ActionEmbedding<T>> actions_;
  LayerStack<T> stack_;
};

}  // namespace turbogr::model
