// Retrieval over a whole table: the best k items of each query, or the rank of one. Scores are made
// in chunks of the table, read where it lies, so 32 M items need no more scratch than 32.
//
//   score = query . item, times the inverse norms that are given
//
// M queries, V items of R rows, D width, E excluded ids in all. A score that is not finite is an
// Error; to tell, a call waits for a GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/rows/stored_rows.h"

namespace turbogr::ops {

template <class T>
struct RetrievalInputs {
  Rows<const T> query;                          // [M, D]
  StoredRows table;                             // [R, D], read as T
  View<const std::int64_t, 1> chosen;           // [V] rows that are the items, or null: all are
  View<const Accum<T>, 1> query_inverse_norms;  // [M], or empty: ones
  View<const Accum<T>, 1> table_inverse_norms;  // [V], or empty: ones
  View<const std::int64_t, 1> excluded;         // [E] ids, query by query, in any order
  Offsets excluded_offsets;                     // [M + 1], or empty: nothing is excluded
  View<const std::int64_t, 1> target;           // [M] ids never excluded, or empty
  // Of a table that is part of a larger one, where a target (-1 in `target`) may be in another
  // part: the targets' own rows and inverse norms. Empty: they are the table's.
  Rows<const T> target_rows;                     // [M, D]
  View<const Accum<T>, 1> target_inverse_norms;  // [M], or empty: ones

  std::int64_t num_items() const { return chosen.data == nullptr ? table.rows : chosen.shape[0]; }
};

template <class T>
struct TopKOutput {
  View<std::int64_t, 2> ids;  // [M, k], best first, equal scores by smaller id; -1 where none left
  View<Accum<T>, 2> scores;   // [M, k]; -infinity where none left
  View<std::int64_t, 1> count;  // [M], how many of the k there were
};

template <class T>
void top_k(const Context& ctx, const RetrievalInputs<T>& inputs, const TopKOutput<T>& output);

// ranks [M]: 1 + the number of items, not excluded, that score strictly higher than the target.
// Over the parts of a table that are scored for the same queries, ranks less one add up.
template <class T>
void rank_of_target(const Context& ctx, const RetrievalInputs<T>& inputs,
                    View<std::int64_t, 1> ranks);

// Enough for either; k is 0 for rank_of_target.
std::size_t top_k_workspace_bytes(const Context& ctx, std::int64_t queries, std::int64_t width,
                                  std::int64_t num_excluded, std::int64_t k);

}  // namespace turbogr::ops
