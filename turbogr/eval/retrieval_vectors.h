// What retrieval compares: a vector of every item, and one of every user that the model makes of
// what the user has done. A model and a source of rows are all it takes.
#pragma once

#include <cstdint>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/feed.h"
#include "turbogr/core/tensor.h"
#include "turbogr/data/batch.h"
#include "turbogr/data/sequence_parts.h"
#include "turbogr/embedding/item_table.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/eval/row_encoder.h"
#include "turbogr/model/model.h"
#include "turbogr/ops/rows/top_k.h"

namespace turbogr::eval {

// The values where the context's device can read them: themselves, or a copy in `memory`.
View<const std::int64_t, 1> on_context(const Context& ctx, const std::vector<std::int64_t>& values,
                                       Tensor& memory);

// Candidates of a rank's part of the items: all of them, or the rows `chosen` alone, which outlive
// it. They stay in the table, in the format it has. Collective over the ranks that share the items.
template <class T>
class ItemVectors {
 public:
  ItemVectors(const Context& ctx, RowEncoder<T>& items,
              const std::vector<std::int64_t>* chosen = nullptr);
  // The table, which of its rows, and their inverse norms.
  void add_to(ops::RetrievalInputs<T>& inputs) const;

 private:
  void encode(const Context& ctx, RowEncoder<T>& items, const std::vector<std::int64_t>* chosen);
  void measure(const Context& ctx);

  ops::StoredRows table_;
  View<const std::int64_t, 1> chosen_;  // null: all rows
  Tensor encoded_;                      // where items have features
  Tensor chosen_there_;                 // for a GPU
  Tensor inverse_norms_;
};

// Vectors of users, a batch at a time or several together; memory is kept for the next ones.
template <class T>
class UserVectors {
 public:
  // For batches of up to `capacity` tokens, those before histories included. The model and the
  // rows outlive it.
  UserVectors(const Context& ctx, model::Model<T>& model, RowEncoder<T>& rows,
              const data::SequenceParts& parts, std::int64_t capacity);

  // Of each sequence's last token, without dropout. Collective over the ranks that share the items.
  void compute(const Context& ctx, const data::Batch& batch) {
    clear();
    add(ctx, batch);
  }
  // The same behind those that are there.
  void add(const Context& ctx, const data::Batch& batch);
  void clear() { users_ = 0; }
  std::int64_t users() const { return users_; }
  Rows<const T> rows() const;                  // [B, D]
  View<const float, 1> inverse_norms() const;  // [B]

 private:
  void make_room(const Context& ctx, std::int64_t users);

  model::Model<T>& model_;
  RowEncoder<T>& rows_;
  data::SequenceMarks marks_;
  Feed feed_;
  Tensor inputs_;  // [capacity, D]
  std::int64_t users_ = 0;
  Tensor vectors_, inverse_norms_;
};

// Rows of single items, with their inverse norms.
template <class T>
class TargetVectors {
 public:
  // Collective over the ranks that share the items.
  void gather(const Context& ctx, RowEncoder<T>& items, const std::vector<std::int64_t>& ids);
  Rows<const T> rows() const;
  View<const float, 1> inverse_norms() const;

 private:
  std::int64_t count_ = 0;
  Tensor rows_, inverse_norms_;
};

}  // namespace turbogr::eval
