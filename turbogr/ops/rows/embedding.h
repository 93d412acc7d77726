// Embedding lookup without duplicates: ids are reduced to the distinct ones, rows are gathered, and
// gradient rows of equal ids are summed in input order, so the result never depends on threads.
//
//   const std::int64_t num_unique = dedup_ids(ctx, ids, groups);
//   gather_rows<float, bf16>(ctx, table, ids, rows);
//   sum_duplicate_rows<bf16>(ctx, drows, groups.first(num_unique), dunique);
//
// N ids, U distinct ones, V rows of the table, D width.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

// The positions of each distinct id: those of unique(u) are positions(offsets(u)) up to
// positions(offsets(u + 1)), ascending.
struct IdGroups {
  View<const std::int64_t, 1> unique;     // [U], ascending
  Offsets offsets;                        // [U + 1]
  View<const std::int32_t, 1> positions;  // [N]
};

// Memory for the result of dedup_ids: U is known only afterwards, so there is room for N.
struct DedupOutput {
  View<std::int64_t, 1> unique;     // [N], the first U are written
  View<std::int64_t, 1> offsets;    // [N + 1], the first U + 1 are written
  View<std::int32_t, 1> positions;  // [N]
  View<std::int32_t, 1> inverse;    // [N], unique(inverse(i)) == ids(i)

  IdGroups first(std::int64_t num_unique) const {
    return {{unique.data, {num_unique}}, {offsets.data, {num_unique + 1}}, positions};
  }
};

// Returns U. Ids must not be negative; there may be at most 2^31 - 1 of them. On a GPU it waits for
// the device, since U is a number of the host's; ids are not checked there.
std::int64_t dedup_ids(const Context& ctx, View<const std::int64_t, 1> ids,
                       const DedupOutput& output);
std::size_t dedup_ids_workspace_bytes(const Context& ctx, std::int64_t num_ids);
std::size_t dedup_ids_workspace_bytes(std::int64_t num_ids);  // on a CPU

// out(i) = table(ids(i)), converted to Out: the table's own format, between f32 and bf16, or from
// f16 to either.
//   table [V, D]    ids [N], int64 or int32 (an inverse)    out [N, D]
// An id outside [0, V) is an Error naming the first such position, and nothing is written; a GPU
// does not look and leaves that row of out as it was.
template <class T, class Out = T, class Index = std::int64_t>
void gather_rows(const Context& ctx, Rows<const T> table,
                 std::type_identity_t<View<const Index, 1>> ids,
                 std::type_identity_t<Rows<Out>> out);

// out(places(i)) = rows(i); places are distinct.
//   rows [N, D]    places [N]    out [M, D]
// A place outside [0, M) is an Error on a CPU; a GPU does not look and leaves that row out.
template <class T>  // float or bf16
void place_rows(const Context& ctx, Rows<const T> rows, View<const std::int32_t, 1> places,
                Rows<T> out);

// dunique(u) = sum of drows over the positions of group u, in input order. Overwrites.
//   drows [N, D]    dunique [U, D]
template <class T>
void sum_duplicate_rows(const Context& ctx, Rows<const T> drows, const IdGroups& groups,
                        Rows<Accum<T>> dunique);

// dtable(unique(u)) += the rows of group u, one by one in input order: the gradient of gather_rows.
//   drows [N, D]    dtable [V, D]
template <class T>
void scatter_add_rows(const Context& ctx, Rows<const T> drows, const IdGroups& groups,
                      Rows<Accum<T>> dtable);

// Of either of the two for N rows; nothing on a CPU.
template <class T>
std::size_t sum_groups_workspace_bytes(const Context& ctx, std::int64_t rows, std::int64_t width);

}  // namespace turbogr::ops
