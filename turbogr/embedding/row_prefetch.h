// Rows of an item table in host memory, brought to a GPU before the step that reads them.
//
// The rows of step t + 1 are known while the device computes step t. Those that step t does not
// touch are gathered and rounded by the host's threads into pinned segments, two of them, and
// copied by a stream of their own to their places among the step's rows once the loss of step t has
// let go of those. Those that step t touches are written there by its update, which has them in
// hand, so the update waits until the next step's places are known. Every row is the one that a
// table on the device would have given, to the bit.
//
// Rows that the device has copies of (row_cache.h) are none of its business.
//
//   prefetch.fetch(ctx, table, cache, previous, next, rows);   // of steps t and t + 1, just drawn
//   prefetch.divide(...); update(...);                  // of step t
//   prefetch.arrive(ctx);                        // the device's stream waits for the copies
//   ... forward, loss ...
//   prefetch.release(ctx);                       // the step's rows are free again
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/device_spans.h"
#include "turbogr/core/planned_bytes.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/view.h"
#include "turbogr/embedding/row_cache.h"
#include "turbogr/embedding/touched_rows.h"

namespace turbogr::embedding {

template <class T>
class RowPrefetch {
 public:
  static constexpr std::int64_t kSegmentBytes = 16 << 20;

  // For steps of at most `most` rows.
  RowPrefetch(const Context& ctx, std::int64_t most, std::int64_t width,
              std::int64_t segment_bytes = kSegmentBytes);

  // Sends rows of `next` that are not among the previous step's (null: none) on their way to their
  // places in `rows`. Waits for segments, and for the update before the last to have reached the
  // table.
  void fetch(const Context& ctx, Rows<const float> table, const RowCache& cache,
             const TouchedRows* previous, const TouchedRows& next, Rows<T> rows);
  // Of the previous step's rows: where each stands among `next`, -1 where it does not; and `which`
  // of them are the table's to update: first those that are `inputs` of the next step's forward
  // pass, then the rest.
  struct Division {
    std::int64_t soon = 0, all = 0;
  };
  Division divide(const Context& ctx, const RowCache& cache, const TouchedRows& previous,
                  const TouchedRows& next, std::span<const View<const std::int64_t, 1>> inputs,
                  View<std::int32_t, 1> places, View<std::int32_t, 1> which);
  void arrive(const Context& ctx) const { arrived_->wait_on(ctx); }
  // A stream beside ctx's, that goes on from where ctx's is now.
  const Context& beside(const Context& ctx);
  void updated() { updated_->record(beside_); }
  void await_update(const Context& ctx) const { updated_->wait_on(ctx); }
  void release(const Context& ctx) { released_->record(ctx); }
  DeviceSpans& spans() { return spans_; }

  std::int64_t rows_sent() const { return rows_sent_; }  // since the beginning
  PlannedBytes bytes() const;

 private:
  struct Segment {
    Tensor host_rows, host_places;  // pinned
    Tensor rows, places;            // on the device
    std::unique_ptr<Event> copied;
  };

  Context copy_, beside_;             // streams of the copies and of updates
  std::vector<std::int64_t> ids_;     // on their way
  std::vector<std::int32_t> arrive_;  // and their places
  std::vector<std::uint8_t> soon_;    // [rows of the next step]
  std::array<Segment, 2> segments_;
  std::unique_ptr<Event> released_, reached_, updated_, arrived_;
  std::int64_t rows_sent_ = 0;
  DeviceSpans spans_;
};

}  // namespace turbogr::embedding
