// The layers of a model, one on another, with the memory they keep and share: rows of width D in,
// rows of width D out, and back.
//
//   LayerStack<float> stack(ctx, options, memory, parameters);
//   ... write the first layer's input to stack.input(n) ...
//   Rows<const float> out = stack.forward(ctx, parameters, step);
//   Rows<const float> dinput = stack.backward(ctx, parameters, step, dout);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "turbogr/core/context.h"
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
  // Whether steps may have a prefix or several targets: on a GPU their masks take memory.
  bool masks = false;
  // Keep only each layer's input and run its forward pass again inside backward: less memory, same
  // bits.
  bool recompute = false;
  // The same bits from every run on a GPU, at a price.
  bool deterministic = false;
  // Of the largest step whose last layer is wanted of targets alone (StepInput::targets); 0: there
  // are none.
  std::int64_t targets = 0;
  // Products of layers in training steps are of matrices in eight bits (ops/dense/fp8.h), each with
  // a scale that follows the steps before.
  bool fp8 = false;
  // Forward alone: no gradients, and nothing kept of a layer when the next one has run.
  bool inference = false;
};

template <class T>
class LayerStack {
 public:
  // Registers the layers' parameters and plans all memory.
  LayerStack(const Context& ctx, const ModelOptions& options, const ModelMemory& memory,
             ParameterSet<T>& parameters);

  void refresh(const Context& ctx, const ParameterSet<T>& parameters);
  void list_rounded(std::vector<T*>& rounded);                                   // see Model
  Tensor* fp8_scales() { return fp8_shared_ ? &fp8_shared_->scales : nullptr; }  // see Model

  // Where the first layer reads [n, D]; n at most the capacity.
  Rows<T> input(std::int64_t n);
  // The result stays until the next forward. With step.targets it is [M, D] and goes to
  // `target_rows`, which stay until backward; else it is [N, D].
  Rows<const T> forward(const Context& ctx, const ParameterSet<T>& parameters,
                        const StepInput& step, Rows<T> target_rows = {});
  // Of the last forward with the same step: the gradient of its input, which may be written to.
  // Adds to the parameters' gradients. `ready`, when given, hears after each layer how many, from
  // the last one on, have their gradients.
  Rows<T> backward(const Context& ctx, ParameterSet<T>& parameters, const StepInput& step,
                   Rows<const T> dout, const std::function<void(std::int64_t layers)>& ready = {});

  // What a layer read in the last forward; of the layer after the last, what came out, unless that
  // was of targets alone. A model made for inference has the last two of these.
  Rows<const T> input_of_layer(std::int64_t layer, std::int64_t n) const;

  // Throws when a step is larger than planned.
  void check_size(const StepInput& step) const;

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

  std::size_t input_place(std::size_t layer) const { return memory_.inference ? layer % 2 : layer; }
  Tensor& input_of(std::size_t layer) {  // and the stack's output, of the layer after the last
    return inputs_[input_place(layer)];
  }
  // Of the largest step.
  ops::AttentionShape attention_shape(const Context& ctx) const;
  ops::AttentionKind attention_kind() const;
  StepInput planned(const StepInput& step);
  void forward_layer(const Context& ctx, const ParameterSet<T>& parameters, const StepInput& step,
                     std::size_t layer);
  bool of_targets(const StepInput& step, std::size_t layer) const {
    return step.targets.data != nullptr && layer + 1 == layers_.size();
  }

  void use_fp8(const Context& ctx, const ParameterSet<T>& parameters);

  ModelOptions options_;
  ModelMemory memory_;
  std::unique_ptr<Fp8Shared<T>> fp8_shared_;
  std::vector<Layer> layers_;
  std::vector<Saved> saved_;
  std::unique_ptr<TargetSaved<T>> target_saved_;
  Rows<T> target_rows_;         // of the last forward
  std::vector<Tensor> inputs_;  // [N, D]: see input_of
  AttentionScratch<T> attention_scratch_;
  std::unique_ptr<FeedForwardScratch<T>> feed_forward_scratch_;
  Tensor gradient_, other_gradient_;  // [N, D], on the way down
  Tensor plan_memory_;
  Tensor kept_;              // of all layers, where they have no tables: see StepInput
  ops::AttentionPlan plan_;  // of the last forward
};

}  // namespace turbogr::model
