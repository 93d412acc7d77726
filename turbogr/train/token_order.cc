#include "turbogr/train/token_order.h"

#include <algorithm>
#include <tuple>

#include "turbogr/core/check.h"

namespace turbogr::train {

void TokenOrder::reserve(std::int64_t tokens) { places_.reserve(static_cast<std::size_t>(tokens)); }

void TokenOrder::shuffle(const ops::NegativeKey& key, View<const std::uint64_t, 1> row_keys,
                         View<std::int32_t, 1> order) {
  TGR_CHECK(order.shape[0] == row_keys.shape[0], "an order of ", order.shape[0], " tokens for ",
            row_keys.shape[0], " row keys");
  // Apart from the streams of draws and of dropout.
  constexpr std::uint64_t kStream = std::uint64_t{3} << 62;
  places_.clear();
  for (std::int64_t i = 0; i < row_keys.shape[0]; ++i) {
    const auto block = philox(key.seed, row_keys(i), kStream | key.step);
    places_.push_back(
        {(std::uint64_t{block[0]} << 32) | block[1], row_keys(i), static_cast<std::int32_t>(i)});
  }
  std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
    return std::tie(a.random, a.key, a.token) < std::tie(b.random, b.key, b.token);
  });
  for (std::int64_t i = 0; i < order.shape[0]; ++i) {
    order(i) = places_[static_cast<std::size_t>(i)].token;
  }
}

}  // namespace turbogr::train
