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
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/data/batch.h"
#include "turbogr/embedding/item_table.h"
#include "turbogr/model/model.h"
#include "turbogr/ops/embedding.h"
#include "turbogr/ops/sampled_softmax.h"
#include "turbogr/ops/update.h"
#include "turbogr/optim/schedule.h"
#include "turbogr/train/named_tensor.h"
#include "turbogr/train/step_feed.h"
#include "turbogr/train/touched_rows.h"

namespace turbogr::train {

struct RetrievalOptions {
  model::ModelOptions model;
  model::ModelMemory memory;
  double temperature = 0.05;
  std::int64_t negatives = 128;
  bool shared_negatives = false;
  AdamWSettings dense;  // of the dense weights; the step is set by the trainer
  embedding::SparseOptimiser table_optimiser = embedding::SparseOptimiser::kAdamW;
  AdamWSettings table;
  double table_scale = 0.02;
  optim::Schedule schedule;
  double clip = 0;  // of the global gradient norm; 0: none
  bool decay_vectors = false;
  std::int64_t accumulate = 1;
  std::uint64_t seed = 1;
};

struct StepResult {
  std::int64_t step = 0;     // counted from 1
  double loss = 0;           // mean over all tokens of the step
  double gradient_norm = 0;  // before clipping
  double rate = 0;
  std::int64_t tokens = 0;
  bool finite = true;  // else nothing was updated
};

template <class T>
class RetrievalTrainer {
 public:
  RetrievalTrainer(const Context& ctx, const RetrievalOptions& options, std::int64_t num_items);
  void initialise(const Context& ctx);

  // Queues one update from its batches, at most options.accumulate of them; the batches are free
  // again when it returns.
  void submit(const Context& ctx, std::span<const data::Batch> batches);
  // Waits for the oldest step submitted and not finished.
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
  void refresh(const Context& ctx) { model_.refresh(ctx); }  // after loading tensors

  // Weights and optimiser state by name, for checkpoints.
  std::vector<NamedTensor> model_tensors();
  std::vector<NamedTensor> optimiser_tensors();

  struct LargestTensor {
    std::string name;
    double largest;  // magnitude; not finite when any element is not
  };
  // Gradients and weights by falling magnitude, for the message when numbers blow up.
  std::vector<LargestTensor> largest_tensors(const Context& ctx) const;

  std::size_t planned_bytes(const Context& ctx) const;

 private:
  // A batch as the device reads it.
  struct Fed {
    model::StepInput input;
    View<const std::int64_t, 1> items;
    ops::SampledSoftmaxInputs<T> candidates;  // but for the query
    ops::IdGroups groups;                     // of the inputs among the touched rows
  };

  model::StepInput input_of(const Context& ctx, const data::Batch& batch, bool training);
  View<std::int64_t, 2> own_negatives(std::size_t batch, std::int64_t tokens);
  void draw_and_mark(const Context& host, std::span<const data::Batch> batches);
  Fed feed(const Context& ctx, const data::Batch& batch, std::size_t index, std::int64_t touched);
  void forward_backward(const Context& ctx, const Fed& fed, double weight, double* loss_sum);
  double update(const Context& ctx, View<const std::int64_t, 1> ids, std::int64_t batches,
                double weight);
  std::size_t feed_bytes() const;

  RetrievalOptions options_;
  model::Model<T> model_;
  embedding::ItemTable table_;
  TouchedRows touched_;
  std::vector<Tensor> first_moments_, second_moments_;  // of the dense parameters
  ops::UpdateSlices slices_;

  std::vector<Tensor> negative_ids_;  // on the host: [capacity, R] a batch, or one [R]
  std::int64_t touched_capacity_;     // rows a step can touch at most
  StepFeed feed_;
  Tensor rows_;              // [capacity, D], gathered inputs and later their gradients
  Tensor compact_;           // [U, D], touched rows in T
  Tensor compact_gradient_;  // [U, D], f32
  Tensor dquery_;            // [capacity, D]
  Tensor loss_, log_sum_exp_, dloss_;
  Tensor squares_, loss_sums_, scale_;  // f64, on the device: of the step being computed

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
