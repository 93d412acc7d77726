#include "turbogr/train/touched_rows.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "turbogr/core/check.h"

namespace turbogr::train {
namespace {

constexpr std::int64_t kPiece = 1 << 14;

}  // namespace

TouchedRows::TouchedRows(std::int64_t rows)
    : marked_(static_cast<std::size_t>(rows)), place_(static_cast<std::size_t>(rows)) {
  TGR_CHECK(rows <= std::numeric_limits<std::int32_t>::max(), "an item table of ", rows,
            " rows; at most 2^31 - 1 can be trained in one table");
  ids_.reserve(static_cast<std::size_t>(rows));
}

void TouchedRows::clear() {
  for (const std::int64_t id : ids_) marked_[static_cast<std::size_t>(id)] = 0;
  ids_.clear();
}

void TouchedRows::mark(const Context& ctx, View<const std::int64_t, 1> ids) {
  const auto rows = static_cast<std::int64_t>(marked_.size());
  parallel_ranges(ctx.pool(), ids.shape[0], kPiece, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t id = ids(i);
      TGR_CHECK(id >= 0 && id < rows, "item id ", id, " at position ", i,
                " of the step; the item table has ", rows, " rows");
      // Threads may mark the same row; all of them write 1.
      std::atomic_ref(marked_[static_cast<std::size_t>(id)]).store(1, std::memory_order_relaxed);
    }
  });
}

void TouchedRows::number(const Context&) {
  for (std::size_t row = 0; row < marked_.size(); ++row) {
    if (marked_[row] == 0) continue;
    place_[row] = static_cast<std::int32_t>(ids_.size());
    ids_.push_back(static_cast<std::int64_t>(row));
  }
}

template <class Place>
void TouchedRows::places_of(const Context& ctx, View<const std::int64_t, 1> ids,
                            View<Place, 1> places) const {
  parallel_ranges(ctx.pool(), ids.shape[0], kPiece, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      places(i) = static_cast<Place>(place_[static_cast<std::size_t>(ids(i))]);
    }
  });
}

template void TouchedRows::places_of<std::int32_t>(const Context&, View<const std::int64_t, 1>,
                                                   View<std::int32_t, 1>) const;
template void TouchedRows::places_of<std::int64_t>(const Context&, View<const std::int64_t, 1>,
                                                   View<std::int64_t, 1>) const;

}  // namespace turbogr::train
