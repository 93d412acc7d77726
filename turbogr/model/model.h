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
#include "turbogr/model/attention_block.h"
#include "turbogr/model/feed_forward.h"
#include "turbogr/model/model_options.h"
#include "turbogr/model/parameters.h"
#include "turbogr/model/step_input.h"

namespace turbogr::model {

struct ModelMemory {
  std::int64_t capacity = 0;  // tokens of the largest step
  // Sequences of the largest step; 0: any number, but a step with many of fewer than 16 tokens is
  // slow on a GPU.
  std::int64_t sequences = 0;
  // Keep only each layer's input and run its forward pass again inside backward: less memory, same
  // bits.
  bool recompute = false;
  // The same bits from every run on a GPU, at a price.
  bool deterministic = false;
  // Forward alone: no gradients, and nothing kept of a layer when the next one has run.
  bool inference = false;
};

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

  // rows [N, D], N at most the capacity. The result stays until the next forward.
  Rows<const T> forward(const Context& ctx, const StepInput& step, Rows<const T> rows);
  // Of the last forward with the same step. Overwrites drows; adds to the parameters' gradients.
  // `ready`, when given, hears after each layer how many, from the last one on, have their
  // gradients.
  void backward(const Context& ctx, const StepInput& step, Rows<const T> dout, Rows<T> drows,
                const std::function<void(std::int64_t layers)>& ready = {});

  // Which parameters are a layer's own: indices [first, last).
  struct Range {
    int first, last;
  };
  Range layer_parameters(std::int64_t layer) const {
    return layers_.at(static_cast<std::size_t>(layer)).parameters;
  }

  std::size_t activation_bytes() const;
  std::size_t workspace_bytes(const Context& ctx) const;

 private:
  struct Layer {
    AttentionBlock<T> attention;
    std::unique_ptr<FeedForward<T>> feed_forward;  // FuXi
    Range parameters;
  };
  // What one layer keeps; with recompute, all layers share one.
  struct Saved {
    AttentionSaved<T> attention;
    std::unique_ptr<FeedForwardSaved<T>> feed_forward;
    Tensor middle;  // [N, D], between the two halves
  };

  Tensor& input_of(std::size_t layer) {  // and the model's output, of the layer after the last
    return inputs_[memory_.inference ? layer % 2 : layer];
  }
  void check_step(const StepInput& step, Rows<const T> rows) const;
  // Of the largest step.
  ops::AttentionShape attention_shape(const Context& ctx) const;
  ops::AttentionKind attention_kind() const;
  void forward_layer(const Context& ctx, const StepInput& step, std::size_t layer, Rows<T> y);
  View<const T, 2> position_rows() const;

  ModelOptions options_;
  ModelMemory memory_;
  ParameterSet<T> parameters_;
  int position_ = -1;
  Tensor position_rounded_;  // bf16 only
  std::unique_ptr<ActionEmbedding<T>> actions_;
  std::vector<Layer> layers_;
  std::vector<Saved> saved_;
  std::vector<Tensor> inputs_;  // [N, D]: see input_of
  AttentionScratch<T> attention_scratch_;
  std::unique_ptr<FeedForwardScratch<T>> feed_forward_scratch_;
  Tensor gradient_, other_gradient_;  // [N, D], on the way down
  Tensor plan_memory_;
  ops::AttentionPlan plan_;  // of the last forward
};

}  // namespace turbogr::model
