// The best items for each user, wherever the items are: each rank ranks the part of the table that
// it holds, for the users of all, and the best of their lists are the list.
//
//   TopItems<float> best(ctx, encoder);
//   users.compute(ctx, batch);
//   for (const auto& list : best.compute(ctx, users, 10, seen)) ...
#pragma once

#include <cstdint>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/eval/group_lists.h"
#include "turbogr/eval/retrieval_vectors.h"
#include "turbogr/ops/rows/top_k.h"

namespace turbogr::eval {

struct Recommendation {
  std::int64_t item;  // its id
  float score;        // cosine, -1 to 1
};

template <class T>
class TopItems {
 public:
  // Of all items, or of `candidates`: ids, ascending, each once.
  TopItems(const Context& ctx, RowEncoder<T>& items,
           const std::vector<std::int64_t>& candidates = {});

  // The k best that are not excluded, best first, of equal ones the smaller id; fewer where there
  // are not so many. Collective over the ranks that share the items; some may have no users.
  std::vector<std::vector<Recommendation>> compute(const Context& ctx, const UserVectors<T>& users,
                                                   std::int64_t k, const Exclusions& own_excluded);

 private:
  using Lists = std::vector<std::vector<Recommendation>>;
  std::vector<std::int64_t> own_rows(const std::vector<std::int64_t>& candidates) const;
  std::int64_t place_of(std::int64_t id) const;  // among this rank's candidates; -1: none
  std::int64_t item_at(std::int64_t place) const;
  // Of this rank's candidates for all users, then of all ranks' for this rank's users.
  Lists own_best(const Context& ctx, const ops::RetrievalInputs<T>& inputs, std::int64_t k) const;
  Lists merged(const Lists& own, std::int64_t users, std::int64_t k) const;

  embedding::RowSource<T>& items_;
  GroupLists<T> group_;
  bool chosen_;                         // not all rows are candidates
  std::vector<std::int64_t> rows_;      // then: those that are, ascending by item
  std::vector<std::int64_t> place_of_;  // then: by row
  ItemVectors<T> vectors_;
  Tensor all_rows_, all_norms_, excluded_, offsets_;
};

}  // namespace turbogr::eval
