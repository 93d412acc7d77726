// The rank of one item for each user among all items, wherever those are: each rank scores the part
// of the table that it holds, for the users of all, and what they count adds up.
//
//   TargetRanks<float> ranks(ctx, encoder);
//   users.compute(ctx, batch);
//   for (std::int64_t rank : ranks.compute(ctx, users, targets, seen)) ...
#pragma once

#include <cstdint>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/eval/group_lists.h"
#include "turbogr/eval/retrieval_vectors.h"

namespace turbogr::eval {

template <class T>
class TargetRanks {
 public:
  TargetRanks(const Context& ctx, RowEncoder<T>& items);

  // 1 + the number of items, not excluded, that score strictly higher than the user's target, which
  // is never excluded. Collective over the ranks that share the items; some may have no users.
  const std::vector<std::int64_t>& compute(const Context& ctx, const UserVectors<T>& users,
                                           const std::vector<std::int64_t>& targets,
                                           const Exclusions& excluded);

 private:
  RowEncoder<T>& rows_;
  embedding::RowSource<T>& items_;
  GroupLists<T> group_;
  ItemVectors<T> vectors_;
  TargetVectors<T> target_vectors_;
  Tensor all_rows_, all_target_rows_, all_norms_, all_target_norms_;
  Tensor target_, excluded_, offsets_, found_;
  std::vector<std::int64_t> counts_, ranks_;
};

}  // namespace turbogr::eval
