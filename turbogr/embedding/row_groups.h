// Rows asked for more than once, brought together.
#pragma once

#include <cstdint>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/ops/rows/embedding.h"

namespace turbogr::embedding {

// Distinct values of `values`, ascending, and where each stands.
void group_equal(const Context& ctx, const std::vector<std::int64_t>& values,
                 std::vector<std::int64_t>& distinct, std::vector<std::int64_t>& offsets,
                 std::vector<std::int32_t>& positions, std::vector<std::int32_t>& inverse);

ops::IdGroups groups_of(const std::vector<std::int64_t>& distinct,
                        const std::vector<std::int64_t>& offsets,
                        const std::vector<std::int32_t>& positions);

}  // namespace turbogr::embedding
