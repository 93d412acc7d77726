// Rows from where they are to where they belong, converted on the way: into a message of rows of
// several widths, and out of it again.
//
//   move_rows<float, bf16>(ctx, table, wanted, {message, units, width, unit}, places);
//
// D width, N rows moved.
#pragma once

#include <cstdint>
#include <type_traits>

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

// to(to_places(i)) = from(from_places(i)), in To.
//   from [V, D]    from_places [N], int64 or int32    to [M, D]    to_places [N]
// Row p begins p strides from the beginning. A stride may be less than the width, as where a
// message holds rows of other widths, too: rows that are written must not overlap. A place outside
// of the matrix is an Error on a CPU, before anything is written; a GPU does not look and leaves it
// out.
template <class From, class To, class Index = std::int32_t>  // float, bf16 or f16
void move_rows(const Context& ctx, std::type_identity_t<Rows<const From>> from,
               std::type_identity_t<View<const Index, 1>> from_places,
               std::type_identity_t<Rows<To>> to, View<const std::int32_t, 1> to_places);

}  // namespace turbogr::ops
