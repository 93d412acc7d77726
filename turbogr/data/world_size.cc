#include "turbogr/data/world_size.h"

#include <limits>

#include "turbogr/core/check.h"

namespace turbogr::data {
namespace {

// Published curves have histories of 20 times the mean: longer ones would not fit a user's memory.
constexpr double kLongestMean = 1e6;

}  // namespace

void check_world_size(const WorldSize& size) {
  constexpr std::int64_t kMostUsers = std::numeric_limits<std::int32_t>::max();
  TGR_CHECK(size.users >= 1 && size.users <= kMostUsers, "a world of ", size.users,
            " users; from 1 to ", kMostUsers, " are possible");
  TGR_CHECK(size.mean_length >= 0 && size.mean_length <= kLongestMean, "histories of ",
            size.mean_length, " events on average; use 0 for the original's mean, or up to ",
            kLongestMean);
  TGR_CHECK(size.max_length == 0 || size.max_length >= kSynthMinLength, "histories of at most ",
            size.max_length, " events; use 0 for no limit, or at least ", kSynthMinLength);
}

}  // namespace turbogr::data
