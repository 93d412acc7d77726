// Which rows of the item table a step touches: the distinct ids, ascending, and each id's place
// among them. One byte and one word a row of the table, so that nothing is sorted.
//
//   touched.clear();
//   touched.mark(ctx, items); touched.mark(ctx, negatives);
//   touched.number(ctx);                       // touched.ids() is ready
//   touched.places_of(ctx, negatives, places); // rows of a compact matrix
#pragma once

#include <cstdint>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"

namespace turbogr::train {

class TouchedRows {
 public:
  explicit TouchedRows(std::int64_t rows);

  void clear();
  // Throws on an id outside the table, naming it and its position.
  void mark(const Context& ctx, View<const std::int64_t, 1> ids);
  void number(const Context& ctx);

  View<const std::int64_t, 1> ids() const {
    return {ids_.data(), {static_cast<std::int64_t>(ids_.size())}};
  }
  // All of them marked before.
  template <class Place>  // int32 or int64
  void places_of(const Context& ctx, View<const std::int64_t, 1> ids, View<Place, 1> places) const;

 private:
  std::vector<std::uint8_t> marked_;
  std::vector<std::int32_t> place_;
  std::vector<std::int64_t> ids_;
};

}  // namespace turbogr::train
