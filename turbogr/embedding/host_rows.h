// A table in pinned host memory that a GPU trains. Rows used often have copies on the device, which
// are trained in the table's stead (row_cache.h). Of the others, a step's are brought ahead of it,
// and an update waits for the next step to be known, whose rows it writes besides the table's
// (row_prefetch.h). The numbers are those of a table on the device, to the bit.
#pragma once

#include <memory>
#include <vector>

#include "turbogr/embedding/local_rows.h"
#include "turbogr/embedding/row_cache.h"
#include "turbogr/embedding/row_prefetch.h"

namespace turbogr::embedding {

template <class T>
class HostRows final : public LocalRows<T> {
 public:
  // For steps of at most `most` rows; `cached` rows have copies on the device.
  HostRows(const Context& ctx, const TableOptions& table, std::int64_t most,
           std::span<const std::int64_t> cached = {});

  std::unique_ptr<RowRequest> make_request(const Context& ctx,
                                           std::span<const std::int64_t> most) const override;
  void fetch(const Context& ctx, Lane lane, RowRequest& request,
             std::span<const StepRows<T>> out) override;
  void update(const Context& ctx, Lane lane, RowRequest& request, Part part,
              std::span<const AdamWSettings> settings, const ops::StepScale* scale) override;
  void await_gradients(const Context& ctx) override { prefetch_.await_update(ctx); }
  void release_rows(const Context& ctx) override { prefetch_.release(ctx); }
  void end_steps(const Context& ctx) override;
  void refresh_copies(const Context& ctx) override;
  PlannedBytes bytes() const override;
  typename RowSource<T>::LinkBytes link_bytes() const override;

 private:
  struct Request : LocalRows<T>::Request {
    Feed slots_feed;
    View<const std::int64_t, 1> slots;  // of its ids in the cache, on the device
    PlannedBytes bytes() const override;
  };
  // The last step's update, which the next one's rows are waited for.
  struct Deferred {
    Request* request = nullptr;  // null: none
    AdamWSettings settings;
    const ops::StepScale* scale = nullptr;
  };
  void send_slots(const Context& ctx, Request& request);
  void update_cache(const Context& ctx, const Request& last);
  void update_late(const Context& ctx, Request& next, Rows<T> rows);

  RowPrefetch<T> prefetch_;
  RowCache cache_;
  bool cache_ahead_ = false;  // of the table
  Feed feed_;                 // places of the last step's rows in the next
  Deferred deferred_;
  double rows_updated_ = 0;
};

}  // namespace turbogr::embedding
