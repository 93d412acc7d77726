// The order in which tokens of a batch share their negatives: a shuffle by token, so that a partner
// is hardly ever a neighbour. A pure function of (seed, step, row key) for every token: where a
// token stands in the batch and how many threads there are change nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "turbogr/core/view.h"
#include "turbogr/ops/rows/draw_negatives.h"

namespace turbogr::train {

class TokenOrder {
 public:
  void reserve(std::int64_t tokens);
  std::size_t bytes() const { return places_.capacity() * sizeof(Place); }
  // order [N]: a permutation of the tokens. row_keys [N], distinct; equal keys keep their order.
  void shuffle(const ops::NegativeKey& key, View<const std::uint64_t, 1> row_keys,
               View<std::int32_t, 1> order);

 private:
  struct Place {
    std::uint64_t random;
    std::uint64_t key;
    std::int32_t token;
  };
  std::vector<Place> places_;
};

}  // namespace turbogr::train
