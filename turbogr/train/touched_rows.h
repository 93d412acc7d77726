// Which rows of the item table a step touches: the distinct ids and each id's place among them,
// ascending, those marked as first before the others. One byte and one word a row of the table, so
// that nothing is sorted.
//
//   touched.clear();
//   touched.mark(ctx, items); touched.mark(ctx, negatives); touched.mark_first(ctx, targets);
//   touched.number(ctx);                       // touched.ids() is ready
//   touched.places_of(ctx, negatives, places); // rows of a compact matrix
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"

namespace turbogr::train {

class TouchedRows {
 public:
  explicit TouchedRows(std::int64_t rows);
  // Of host memory, for a table of so many rows.
  static std::size_t bytes_of(std::int64_t rows) {
    return static_cast<std::size_t>(rows) *
           (sizeof(std::uint8_t) + sizeof(std::int32_t) + sizeof(std::int64_t));
  }

  void clear();
  // Throws on an id outside the table, naming it and its position.
  void mark(const Context& ctx, View<const std::int64_t, 1> ids) { mark_as(ctx, ids, kTouched); }
  void mark_first(const Context& ctx, View<const std::int64_t, 1> ids) {
    mark_as(ctx, ids, kFirst);
  }
  void number(const Context& ctx);
  std::int64_t num_first() const { return num_first_; }

  View<const std::int64_t, 1> ids() const {
    return {ids_.data(), {static_cast<std::int64_t>(ids_.size())}};
  }
  // The place of one id, -1 where it is not among them.
  std::int32_t find(std::int64_t id) const {
    const auto row = static_cast<std::size_t>(id);
    return marked_[row] == kUntouched ? -1 : place_[row];
  }
  // All of them marked before.
  template <class Place>  // int32 or int64
  void places_of(const Context& ctx, View<const std::int64_t, 1> ids, View<Place, 1> places) const;

 private:
  enum Mark : std::uint8_t { kUntouched, kTouched, kFirst };
  void mark_as(const Context& ctx, View<const std::int64_t, 1> ids, Mark mark);

  std::vector<std::uint8_t> marked_;
  std::vector<std::int32_t> place_;
  std::vector<std::int64_t> ids_;
  std::int64_t num_first_ = 0;
  bool any_first_ = false;
};

}  // namespace turbogr::train
