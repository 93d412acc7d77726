// One training step of the retrieval task, top to bottom: negatives -> touched rows -> model ->
// loss -> gradients -> updates. Owns the model, the item table and their optimisers' state.
//
//   RetrievalTrainer<float> trainer(ctx, options, num_items);
//   StepResult result = trainer.step(ctx, batches);      // one batch, or several to accumulate
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/data/batch.h"
#include "turbogr/embedding/item_table.h"
#include "turbogr/model/model.h"
#include "turbogr/optim/adamw.h"
#include "turbogr/optim/schedule.h"
#include "turbogr/train/named_tensor.h"
#include "turbogr/train/touched_rows.h"

namespace turbogr::train {

struct RetrievalOptions {
  model::ModelOptions model;
  model::ModelMemory memory;
  double temperature = 0.05;
  std::int64_t negatives = 128;
  bool shared_negatives = false;
  optim::AdamWOptions dense;  // rate, betas, decay; step and scale are set by the trainer
  embedding::SparseOptimiser table_optimiser = embedding::SparseOptimiser::kAdamW;
  embedding::SparseUpdateOptions table;
  double table_scale = 0.02;
  optim::Schedule schedule;
  double clip = 0;  // of the global gradient norm; 0: none
  bool decay_vectors = false;
  std::int64_t accumulate = 1;
  std::uint64_t seed = 1;
};

struct StepResult {
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

  // The batches of one update, at most options.accumulate of them.
  StepResult step(const Context& ctx, std::span<const data::Batch> batches);

  // Output vectors of each sequence's last token, not normalised: out [B, D]. No dropout.
  void last_vectors(const Context& ctx, const data::Batch& batch, Rows<T> out);

  std::int64_t steps_done() const { return steps_done_; }
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
  std::vector<LargestTensor> largest_tensors() const;

  std::size_t planned_bytes(const Context& ctx) const;

 private:
  model::StepInput input_of(const data::Batch& batch, bool training) const;
  View<std::int64_t, 2> own_negatives(std::size_t batch, std::int64_t tokens);
  void draw_and_mark(const Context& ctx, std::span<const data::Batch> batches);
  double forward_backward(const Context& ctx, const data::Batch& batch, std::size_t index,
                          double weight);
  void update(const Context& ctx, StepResult& result);

  RetrievalOptions options_;
  model::Model<T> model_;
  embedding::ItemTable table_;
  TouchedRows touched_;
  std::vector<Tensor> first_moments_, second_moments_;  // of the dense parameters
  std::vector<optim::AdamWSlice> slices_;

  std::vector<Tensor> negative_ids_;  // [capacity, R] a batch, or one [R]
  Tensor positive_places_, negative_places_;
  Tensor rows_;              // [capacity, D], gathered inputs and later their gradients
  Tensor compact_;           // [U, D], touched rows in T
  Tensor compact_gradient_;  // [U, D], f32
  Tensor dquery_;            // [capacity, D]
  Tensor loss_, log_sum_exp_, dloss_;
  Tensor group_unique_, group_offsets_, group_positions_, group_inverse_, input_places_;
  std::int64_t steps_done_ = 0;
};

}  // namespace turbogr::train
