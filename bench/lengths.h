// Sequence lengths to measure with, from a short text:
//   kuairand                 users of KuaiRand-27K, capped at the longest length allowed
//   uniform:L                every sequence L tokens
//   lognormal:MEAN:MAX       log-normal with the mean given (sigma 1), capped
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace turbogr::bench {

// Lengths whose sum is `tokens` exactly (the last one is cut), none longer than max_length.
std::vector<std::int64_t> make_lengths(const std::string& text, std::int64_t tokens,
                                       std::int64_t max_length, std::uint64_t seed);

// As many lengths as users, at evenly spaced quantiles of KuaiRand-27K's: ascending, not capped.
std::vector<std::int64_t> kuairand_table(std::int64_t users);

}  // namespace turbogr::bench
