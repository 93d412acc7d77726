// What a row of a table starts as: truncated normal, a function of (seed, id) alone, so that every
// sharding, every order of arrival and every larger table begins with the same rows.
#pragma once

#include <cstdint>

namespace turbogr::embedding {

void write_initial_row(std::uint64_t seed, std::int64_t id, double scale, std::int64_t width,
                       float* row);

}  // namespace turbogr::embedding
