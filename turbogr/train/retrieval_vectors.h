// The two sides of a ranking: users' vectors out of the model, items' out of the table. Scores are
// cosines, so each comes with the inverses of its rows' lengths. Evaluation and recommendation take
// both from here, which is why their scores have the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/data/batch.h"
#include "turbogr/embedding/item_table.h"
#include "turbogr/train/schedules.h"

namespace turbogr::train {

// The values where the context's device can read them: themselves, or a copy in `memory`.
View<const std::int64_t, 1> on_context(const Context& ctx, const std::vector<std::int64_t>& values,
                                       Tensor& memory);

// Rows of the item table in T: all of them, or those of `candidates` (indices, ascending) alone.
template <class T>
class ItemVectors {
 public:
  ItemVectors(const Context& ctx, const embedding::ItemTable& table,
              const std::vector<std::int64_t>& candidates = {});
  Rows<const T> rows() const { return rows_; }
  View<const float, 1> inverse_norms() const { return inverse_norms_.view<float, 1>(); }

 private:
  Tensor copied_;  // bf16, or candidates
  Tensor inverse_norms_;
  Rows<const T> rows_;
};

// What the model makes of each sequence of a batch. Memory is kept for the next one.
template <class T>
class UserVectors {
 public:
  void compute(const Context& ctx, RetrievalTrainer<T>& trainer, const data::Batch& batch);
  Rows<const T> rows() const;
  View<const float, 1> inverse_norms() const;

 private:
  std::int64_t users_ = 0;
  Tensor vectors_, inverse_norms_;
};

}  // namespace turbogr::train
