// A ranking model: what a person did, and targets to be judged, in; K logits a target out; and
// back. Rows of features come from and go to the caller (a model sees rows, not tables); the loss
// is the caller's too.
//
//   prefix token k   = row W_k + b_k
//   event token      = content(id's row) + extra(the other rows) + action(bits)      MLPs
//   x                = dropout(sqrt(D) token + position + time)                      event_input
//   r                = layers(x) at targets, with their clock (post_processor.h)
//   logits           = head(r * tower(a target's rows))                              MLPs
//
//   RankingModel<float> model(ctx, options, {.layers = {.capacity = 65536, .sequences = 64},
//                                            .targets = 2048});
//   model.initialise(ctx, seed);
//   Rows<const float> logits = model.forward(ctx, step, rows);
//   model.backward(ctx, step, rows, dlogits, drows);   // adds to model.parameters()' gradients
//   ... update the parameters ...
//   model.refresh(ctx);
//
// B sequences, N tokens, c prefix features, M targets; the other letters as in ranking_options.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/model/layer_stack.h"
#include "turbogr/model/mlp.h"
#include "turbogr/model/parameters.h"
#include "turbogr/model/post_processor.h"
#include "turbogr/model/ranking_options.h"
#include "turbogr/model/weight_matrix.h"
#include "turbogr/ops/rows/event_input.h"
#include "turbogr/ops/rows/event_targets.h"

namespace turbogr::model {

struct RankingMemory {
  ModelMemory layers;        // sequences must be given; masks are the model's to say
  std::int64_t targets = 0;  // of the largest step
  // Of one sequence; 0: any number. Where it is 1, a GPU needs no memory for masks.
  std::int64_t most_targets = 0;
};

// A step besides its rows, in memory of the context's device. What a GPU's has must have been
// checked before it got there (ranking_inputs.h).
struct RankingStep {
  ops::EventSequences sequences;
  std::int64_t num_targets = 0;           // M, the sum of sequences.num_targets
  std::int64_t most_targets = 0;          // of one sequence; 0: not known
  View<const std::uint32_t, 1> actions;   // [N - B c], of events; a target's is never read
  View<const std::uint64_t, 1> row_keys;  // [N], see StepInput
  // [N], where layers have a time map: see fill_token_times.
  View<const std::int64_t, 1> key_times, query_times;
  View<const float, 1> bases;  // [M K], where logits have them
  double norm_length = 0;      // of this step's attention; 0: the model's own
  bool training = false;       // dropout only then
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
};

// What attention is divided by where the batch decides: its longest history and its most targets
// and the prefix.
double batch_norm_length(const ops::EventSequences& sequences);

// When each token is asked (keys) and asks (queries), for a time map; all of it the host's, [N].
// As in retrieval, an event asks at the time of the one after it, and a prefix token is at the time
// of the sequence's first event. A target asks at its own time, when it was shown.
void fill_token_times(const ops::EventSequences& sequences, View<std::int64_t, 1> keys,
                      View<std::int64_t, 1> queries);

// Throws when one of the sequences, which are the host's, is longer than a model takes.
void check_lengths(const ops::EventSequences& sequences, std::int64_t max_length);

// Rows of features, pooled where a feature is a bag, zeros where it has no id. T may be const.
template <class T>
struct RankingRows {
  Rows<T> prefix;  // [B, c E], a sequence's features side by side
  Rows<T> items;   // [N - B c, F E], an event's features side by side, the id's first
};

template <class T>
class RankingModel {
 public:
  // Plans all memory, the context's workspace too; a step allocates nothing.
  RankingModel(const Context& ctx, const RankingOptions& options, const RankingMemory& memory);

  const RankingOptions& options() const { return options_; }
  ParameterSet<T>& parameters() { return parameters_; }
  const ParameterSet<T>& parameters() const { return parameters_; }

  void initialise(const Context& ctx, std::uint64_t seed);
  void refresh(const Context& ctx);  // after every change of the parameters

  // Logits [M, K], targets in the order of their sequences; they stay until the next forward.
  Rows<const T> forward(const Context& ctx, const RankingStep& step,
                        const RankingRows<const T>& rows);
  // Of the last forward with the same step and rows. Overwrites drows; adds to the parameters'
  // gradients. `ready` as in LayerStack.
  void backward(const Context& ctx, const RankingStep& step, const RankingRows<const T>& rows,
                Rows<const T> dlogits, const RankingRows<T>& drows,
                const std::function<void(std::int64_t layers)>& ready = {});

  // Which parameters are a layer's own.
  typename LayerStack<T>::Range layer_parameters(std::int64_t layer) const {
    return layers_.layer_parameters(layer);
  }

  // What the last forward made on its way, for those who compare: what layer `layer` read (only
  // where the layers keep it), the last one's result of targets, r, and the item tower's result.
  Rows<const T> layer_input(std::int64_t layer, std::int64_t tokens) const {
    return layers_.input_of_layer(layer, tokens);
  }
  Rows<const T> target_rows(std::int64_t targets) const;
  Rows<const T> user_rows(std::int64_t targets) const;
  Rows<const T> item_rows(std::int64_t targets) const;

  std::size_t activation_bytes() const;
  std::size_t workspace_bytes(const Context& ctx) const;

 private:
  struct PrefixFeature {
    WeightMatrix<T> weight;
    int bias;
  };

  int add_table(const char* name, const std::vector<std::int64_t>& shape, Init init, double scale);
  std::vector<PrefixFeature> add_prefix();
  std::optional<Mlp<T>> add_extra(const Context& ctx);
  MlpOptions token_mlp(const char* name, std::int64_t inputs) const;
  MlpOptions target_mlp(const char* name, std::int64_t inputs, std::int64_t outputs,
                        bool norm) const;
  void check_step(const RankingStep& step, const RankingRows<const T>& rows) const;
  StepInput layer_step(const RankingStep& step) const;
  ops::EventInputOptions input_options(const StepInput& step) const;
  ops::EventTargets targets(const RankingStep& step);
  View<Accum<T>, 1> vector_gradient(int index);

  RankingOptions options_;
  RankingMemory memory_;
  ParameterSet<T> parameters_;
  std::vector<PrefixFeature> prefix_;
  Mlp<T> content_;
  std::optional<Mlp<T>> extra_;  // where the id is not the only item feature
  int action_table_, action_target_;
  Mlp<T> action_;
  int position_, time_;
  LayerStack<T> layers_;
  PostProcessor<T> post_;
  Mlp<T> tower_, head_;

  Tensor prefix_counts_;                                               // [B], all c
  Tensor prefix_tokens_, event_tokens_, other_tokens_;                 // [B, c D], [N, D], [N, D]
  Tensor actions_;                                                     // [N, 8 A]
  Tensor target_tokens_, target_events_, target_times_, target_keys_;  // [M]
  Tensor target_starts_;                                               // [B + 1]
  Tensor target_items_, item_, product_, logits_;     // [M, F E], [M, D], [M, D], [M, K]
  Tensor bases_;                                      // [M, K], where the model has them
  Tensor dprefix_tokens_, devent_tokens_, dactions_;  // as what they are gradients of
  Tensor dproduct_, duser_, ditem_, dtarget_items_;
};

}  // namespace turbogr::model
