// One training step of the retrieval task, top to bottom: negatives -> touched rows -> model ->
// loss -> gradients -> updates. Owns the model, the item table and their optimisers' state.
//
//   RetrievalTrainer<float> trainer(ctx, options, num_items);
//   StepResult result = trainer.step(ctx, batches);      // one batch, or several to accumulate
//
// On a GPU the host draws negatives and numbers rows of one step while the device computes the one
// before; nothing waits for the device but the reading of results, which may come late:
//
//   trainer.submit(ctx, batches);
//   if (trainer.pending() == trainer.queue_length()) result = trainer.finish();
//
// The step is in retrieval_trainer.cc; retrieval_rows.cc has the item rows it reads,
// retrieval_feed.cc how a batch gets to the device, retrieval_state.cc what is saved and planned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/data/batch.h"
#include "turbogr/embedding/half_table.h"
#include "turbogr/embedding/item_table.h"
#include "turbogr/model/model.h"
#include "turbogr/ops/embedding.h"
#include "turbogr/ops/sampled_softmax.h"
#include "turbogr/ops/update.h"
#include "turbogr/optim/schedule.h"
#include "turbogr/train/device_spans.h"
#include "turbogr/train/named_tensor.h"
#include "turbogr/train/negative_sampler.h"
#include "turbogr/train/planned_bytes.h"
#include "turbogr/train/row_prefetch.h"
#include "turbogr/train/sequence_parts.h"
#include "turbogr/train/step_feed.h"
#include "turbogr/train/step_slot.h"
#include "turbogr/train/token_order.h"

namespace turbogr::train {

struct RetrievalOptions {
  model::ModelOptions model;
  model::ModelMemory memory;
  SequenceParts parts;
  double temperature = 0.05;
  NegativeOptions negatives;
  AdamWSettings dense;  // of the dense weights; the step is set by the trainer
  embedding::SparseOptimiser table_optimiser = embedding::SparseOptimiser::kAdamW;
  AdamWSettings table;
  // GPU: the item table and its optimiser's state stay in pinned host memory; a step's rows are
  // brought ahead of it (row_prefetch.h), and its update writes them back over the link.
  bool table_in_host_memory = false;
  double table_scale = 0.02;
  optim::Schedule schedule;
  double clip = 0;  // of the global gradient norm; 0: none
  bool decay_vectors = false;
  std::int64_t accumulate = 1;
  bool holds_table = true;  // false: the rows live on many ranks (rank_pipeline.h)
  std::uint64_t seed = 1;
};

Device table_device(const Context& ctx, const RetrievalOptions& options);

struct StepResult {
  std::int64_t step = 0;     // counted from 1
  double loss = 0;           // mean over the tokens of the step that predict
  double gradient_norm = 0;  // before clipping
  double rate = 0;
  std::int64_t tokens = 0;
  std::int64_t predicting = 0;  // tokens the loss counts
  bool finite = true;           // else nothing was updated
};

template <class T>
class RetrievalTrainer {
 public:
  // counts [num_items]: how often each item is a training target, for samplers that go by it.
  RetrievalTrainer(const Context& ctx, const RetrievalOptions& options, std::int64_t num_items,
                   std::span<const std::int64_t> counts = {});
  void initialise(const Context& ctx);

  // Queues one update from its batches, at most options.accumulate of them; the batches are free
  // again when it returns.
  void submit(const Context& ctx, std::span<const data::Batch> batches);
  // Waits for the oldest step submitted and not finished. Once none is left, the table is up to
  // date.
  StepResult finish();
  std::int64_t pending() const { return static_cast<std::int64_t>(pending_.size()); }
  std::int64_t queue_length() const { return queue_length_; }  // submitted at a time, at most

  StepResult step(const Context& ctx, std::span<const data::Batch> batches) {
    submit(ctx, batches);
    return finish();
  }

  // Output vectors of each sequence's last token, not normalised: out [B, D] on the context's
  // device. No dropout.
  void last_vectors(const Context& ctx, const data::Batch& batch, Rows<T> out);

  std::int64_t steps_done() const { return steps_done_; }  // submitted ones, too
  void set_steps_done(std::int64_t steps) { steps_done_ = steps; }
  model::Model<T>& model() { return model_; }
  embedding::ItemTable& table() { return table_; }
  void refresh(const Context& ctx);  // after loading tensors

  // The stages of a step, for those who fetch rows and sum gradients over ranks themselves.
  //   draw      negatives of step `step` (from 0) and the rows it touches, on the host; where
  //             needs_positives(), `positives` are those of all ranks, these batches' included
  //   compute   given slot.compact: the gradients of all that is trained, each token's loss weighed
  //             by `weight`; sums of losses are in loss_sums(). `ready` hears, during the last
  //             backward pass, how many of the layers' gradients are final, last layer first.
  //   update_dense   the dense weights; returns the learning rate
  using LayersReady = std::function<void(std::int64_t layers)>;
  const RetrievalOptions& options() const { return options_; }
  std::int64_t num_items() const { return num_items_; }
  struct Positives {
    View<const std::int64_t, 1> distinct;
    std::int64_t count = 0;  // with repeats
  };
  bool needs_positives() const { return sampler_.needs_positives(); }
  void draw(const Context& host, std::span<const data::Batch> batches, std::int64_t step,
            StepSlot<T>& slot, const std::optional<Positives>& positives = {});
  void compute(const Context& ctx, std::span<const data::Batch> batches, std::int64_t step,
               double weight, StepSlot<T>& slot, const LayersReady& ready = {});
  View<const double, 1> loss_sums() const { return loss_sums_.template view<double, 1>(); }
  const ops::UpdateSlices& slices() const { return slices_; }
  double update_dense(const Context& ctx, std::int64_t step, const ops::StepScale* scale);
  AdamWSettings table_settings(std::int64_t step) const;

  // Weights and optimiser state by name, for checkpoints.
  std::vector<NamedTensor> model_tensors();
  std::vector<NamedTensor> optimiser_tensors();

  struct LargestTensor {
    std::string name;
    double largest;  // magnitude; not finite when any element is not
  };
  // Gradients and weights by falling magnitude, for the message when numbers blow up.
  std::vector<LargestTensor> largest_tensors(const Context& ctx) const;

  // All that training takes, the copies of weights that initialise makes included.
  PlannedBytes planned_bytes(const Context& ctx) const;
  // What a table in host memory has sent over the link since the beginning, and got back.
  struct LinkBytes {
    double to_device = 0, to_host = 0;
  };
  LinkBytes link_bytes() const;

 private:
  // A batch as the device reads it.
  struct Fed {
    model::StepInput input;
    View<const std::int64_t, 1> items;        // with inputs_from_table
    View<const std::int64_t, 1> places;       // of the inputs among the touched rows
    ops::SampledSoftmaxInputs<T> candidates;  // but for the query
    ops::IdGroups groups;                     // of the inputs among the touched rows
    // With targets: which tokens predict, and every token's weight in the loss. Else empty.
    View<const std::int64_t, 1> predicting;
    View<const float, 1> weights;
    std::int64_t touched = 0;
    bool first = true;  // of the step's batches
  };

  // Else they are among the step's rows, already in T. With f16 negatives those are not all there.
  bool inputs_from_table() const {
    return options_.holds_table && prefetch_ == nullptr && options_.negatives.half;
  }
  model::StepInput input_of(const Context& ctx, const data::Batch& batch, std::int64_t step,
                            bool training);
  void gather_rows(const Context& ctx, View<const std::int64_t, 1> ids, StepSlot<T>& slot);
  void bring_rows(const Context& ctx, std::span<const data::Batch> batches);
  void flush_update();
  void zero_gradient(const Context& ctx, StepSlot<T>& slot);
  ops::SampledSoftmaxInputs<T> candidates_of(const Context& ctx, const StepSlot<T>& slot);
  void compute_batches(const Context& ctx, std::span<const data::Batch> batches, std::int64_t step,
                       double weight, StepSlot<T>& slot, const LayersReady& ready);
  Fed feed(const Context& ctx, const data::Batch& batch, std::size_t index, std::int64_t step,
           double weight, const StepSlot<T>& slot, const ops::SampledSoftmaxInputs<T>& candidates);
  void forward_backward(const Context& ctx, const Fed& fed, double weight, StepSlot<T>& slot,
                        double* loss_sum, const LayersReady& ready);
  double update(const Context& ctx, View<const std::int64_t, 1> ids, std::int64_t batches,
                double weight);
  std::size_t feed_bytes() const;

  RetrievalOptions options_;
  model::Model<T> model_;
  embedding::ItemTable table_;
  std::int64_t num_items_;
  SequenceMarks marks_;  // of the batch last looked at
  NegativeSampler sampler_;
  TokenOrder token_order_;
  embedding::HalfTable half_table_;
  std::vector<Tensor> first_moments_, second_moments_;  // of the dense parameters
  ops::UpdateSlices slices_;
  bool update_rounds_ = false;  // the update keeps the model's rounded weights, too

  std::unique_ptr<StepSlot<T>> slot_;  // where the table is here
  StepFeed feed_;
  Tensor rows_;    // [capacity, D], gathered inputs and later their gradients
  Tensor dquery_;  // [capacity, D]
  Tensor loss_, log_sum_exp_, dloss_;
  Tensor squares_, loss_sums_, scale_;  // f64, on the device: of the step being computed

  // Of a table in host memory: the last step's update, which the next step's rows are waited for.
  struct Deferred {
    const Context* ctx = nullptr;     // null: none
    View<const std::int64_t, 1> ids;  // on the device
    AdamWSettings settings;
  };
  std::unique_ptr<RowPrefetch<T>> prefetch_;
  Deferred deferred_;
  double rows_updated_ = 0;
  DeviceSpans spans_;

  struct Pending {
    StepResult result;     // what the host knows
    std::size_t slot = 0;  // of results_
  };
  std::int64_t queue_length_;
  Tensor results_;  // f64 [queue length, 4], pinned: one StepScale a step
  std::vector<std::unique_ptr<Event>> result_events_;
  std::deque<Pending> pending_;
  std::int64_t steps_done_ = 0;
};

}  // namespace turbogr::train
