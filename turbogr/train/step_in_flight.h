// One training step on its way: what it was given, what it drew, the rows it computes with, and the
// numbers that decide its update.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/planned_bytes.h"
#include "turbogr/core/tensor.h"
#include "turbogr/data/batch.h"
#include "turbogr/embedding/row_source.h"
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

// f64 of one step in the device's memory, which nobody waits for: see the places below.
class StepNumbers {
 public:
  StepNumbers(const Context& ctx, std::int64_t parts, std::int64_t tables);

  double* dense_squares() { return at(kDense); }
  // Of each table; where gradients return late, the first has all of this rank's.
  double* row_squares() { return at(kRows); }
  double* losses() { return at(kRows + tables_); }  // sums of each part
  double* late_squares(embedding::Part part) {      // of gradients that returned after the scale
    return at(part == embedding::Part::kRest ? late_ + tables_ : late_);
  }
  std::int64_t tables() const { return tables_; }
  ops::StepScale* scale() { return reinterpret_cast<ops::StepScale*>(at(0)); }
  void clear(const Context& ctx);

  void send(const Context& ctx);  // to the host, where they are once the stream has passed
  struct Known {
    ops::StepScale scale;
    double dense_squares, late_squares;
  };
  Known wait();

 private:
  static constexpr std::int64_t kDense = 4, kRows = 5;
  double* at(std::int64_t place) { return values_.view<double, 1>().data + place; }

  std::int64_t tables_, late_;
  Tensor values_, on_host_;
  Event sent_;
};

template <class T>
struct StepInFlight {
  std::int64_t step = 0;  // from 0
  std::span<const data::Batch> batches;
  std::vector<data::Batch> kept;  // where they are computed after submit has returned
  bool stop = false;
  std::int64_t tokens = 0, predicting = 0;  // of this rank; the result has those of all
  bool rows_late = false;                   // gradients of rows return after the dense update
  bool done = false;                        // every stage is queued
  StepResult result;

  std::vector<embedding::TouchedRows> touched;      // one a table
  std::vector<View<const std::int64_t, 1>> inputs;  // items of each batch
  std::vector<Tensor> negative_ids;         // on the host: [capacity, R] a batch, or one [R]
  std::vector<std::int64_t> num_negatives;  // drawn, a batch
  Tensor corrections;                       // on the host: [U], of the touched rows' logits
  std::vector<std::int64_t> positives;      // distinct, of all ranks, where the sampler asks
  // Of the features' tables, where there are any.
  std::unique_ptr<eval::FeatureInputs> feature_inputs;
  std::unique_ptr<model::FeatureRows> feature_rows;
  std::unique_ptr<embedding::RowRequest> request;
  StepRowMemory<T>* memory = nullptr;
  StepNumbers numbers;

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
