// One training step of the retrieval task on its way: what it was given, what it drew and the rows
// it computes with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/planned_bytes.h"
#include "turbogr/core/tensor.h"
#include "turbogr/data/batch.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/train/flight.h"
#include "turbogr/train/step_options.h"

namespace turbogr::train {

// A step's rows and their gradients, in the device's memory.
template <class T>
struct StepRowMemory {
  // Touched rows in T, the items' (only those read in full precision beside f16 ones), then the
  // features', table by table.
  Tensor rows;                   // [U + F, D]
  Tensor half_rows, half_scale;  // [U, D] and [U], touched rows in f16
  Tensor gradient;               // [U + F, D], f32

  StepRowMemory(const Context& ctx, const RetrievalOptions& options, std::int64_t num_items);
  PlannedBytes bytes() const;
};

template <class T>
struct StepInFlight : Flight {
  std::span<const data::Batch> batches;
  std::vector<data::Batch> kept;            // where they are computed after submit has returned
  std::int64_t tokens = 0, predicting = 0;  // of this rank; the result has those of all
  StepResult result;

  std::vector<embedding::TouchedRows> touched;      // one a table
  std::vector<View<const std::int64_t, 1>> inputs;  // items of each batch
  std::vector<Tensor> negative_ids;         // on the host: [capacity, R] a batch, or one [R]
  std::vector<std::int64_t> num_negatives;  // drawn, a batch
  // All that negatives may be is touched: they are drawn where they are read, and as rows.
  bool all_candidates = false;
  Tensor corrections;                   // on the host: [U], of the touched rows' logits
  std::vector<std::int64_t> positives;  // distinct, of all ranks, where the sampler asks
  // Of the features' tables, where there are any.
  std::unique_ptr<eval::FeatureInputs> feature_inputs;
  std::unique_ptr<model::FeatureRows> feature_rows;
  StepRowMemory<T>* memory = nullptr;

  // The options outlive it.
  StepInFlight(const Context& ctx, const RetrievalOptions& options, std::int64_t num_items,
               const embedding::RowSource<T>& source);
  // But for the rows' memory.
  PlannedBytes bytes() const;

  std::int64_t num_rows() const { return touched[0].ids().shape[0]; }  // of items
  std::int64_t num_feature_rows() const { return feature_rows ? feature_rows->num_rows() : 0; }
  embedding::StepRows<T> item_rows() const;
  Rows<T> features() const;  // rows of all their tables
  Rows<float> item_gradient() const;
  Rows<float> feature_gradient() const;
  Rows<float> gradient() const;  // both
  // One a table; they stay until the next call.
  std::span<const embedding::StepRows<T>> rows();
  std::span<const Rows<const float>> gradients();

 private:
  std::vector<embedding::StepRows<T>> rows_;
  std::vector<Rows<const float>> gradients_;
};

}  // namespace turbogr::train
