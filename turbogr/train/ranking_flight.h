// One training step of the ranking task on its way: its batch, the rows it computes with, and how
// much weight its targets have.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/planned_bytes.h"
#include "turbogr/core/tensor.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/model/feature_rows.h"
#include "turbogr/model/ranking_batch.h"
#include "turbogr/train/flight.h"
#include "turbogr/train/ranking_train_options.h"

namespace turbogr::train {

// A copy of a batch. Allocates nothing once it has seen as large a one.
class KeptRankingBatch {
 public:
  // Points into this; stays until the next call.
  model::RankingBatch keep(const model::RankingBatch& batch);

 private:
  struct Ids {
    std::vector<std::int64_t> ids, offsets;
    std::vector<float> weights;
  };

  std::vector<std::int64_t> offsets_, num_targets_, times_;
  std::vector<std::uint32_t> actions_;
  std::vector<std::uint64_t> row_keys_;
  std::vector<Ids> ids_;  // prefix features', then items'
  std::vector<model::FeatureIds> features_;
  std::vector<float> labels_, weights_, bases_;
};

// Rows of a step, all tables' end to end, and their gradients, in the device's memory.
struct RankingRowMemory {
  Tensor rows;      // [U, E]
  Tensor gradient;  // [U, E], f32

  PlannedBytes bytes() const;
};

template <class T>
struct RankingFlight : Flight {
  model::RankingBatch batch;
  KeptRankingBatch kept;  // where it is computed after submit has returned
  RankingResult result;
  model::FeatureRows feature_rows;
  std::vector<embedding::TouchedRows> touched;  // one a table
  std::vector<double> weight_sums;              // [K], of all ranks
  RankingRowMemory* memory = nullptr;

  // The options outlive it.
  RankingFlight(const Context& ctx, const RankingTrainOptions& options,
                const embedding::RowSource<T>& source);
  // But for the rows' memory.
  PlannedBytes bytes() const;

  Rows<T> all_rows() const;
  Rows<float> gradient() const;
  // One a table; they stay until the next call.
  std::span<const embedding::StepRows<T>> rows();
  std::span<const Rows<const float>> gradients();

 private:
  std::vector<embedding::StepRows<T>> rows_;
  std::vector<Rows<const float>> gradients_;
};

}  // namespace turbogr::train
