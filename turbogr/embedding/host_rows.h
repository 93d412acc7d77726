// A table in pinned host memory that a GPU trains: a step's rows are brought ahead of it, and an
// update waits for the next step to be known, whose rows it writes besides the table's
// (row_prefetch.h).
#pragma once

#include <memory>
#include <vector>

#include "turbogr/embedding/local_rows.h"
#include "turbogr/embedding/row_prefetch.h"

namespace turbogr::embedding {

template <class T>
class HostRows final : public LocalRows<T> {
 public:
  HostRows(const Context& ctx, const TableOptions& table, std::int64_t most);

  void fetch(const Context& ctx, Lane lane, RowRequest& request,
             std::span<const StepRows<T>> out) override;
  void update(const Context& ctx, Lane lane, RowRequest& request, Part part,
              std::span<const AdamWSettings> settings, const ops::StepScale* scale) override;
  void await_gradients(const Context& ctx) override { prefetch_.await_update(ctx); }
  void release_rows(const Context& ctx) override { prefetch_.release(ctx); }
  void end_steps(const Context& ctx) override;
  PlannedBytes bytes() const override;
  typename RowSource<T>::LinkBytes link_bytes() const override;

 private:
  using Request = typename LocalRows<T>::Request;
  // The last step's update, which the next one's rows are waited for.
  struct Deferred {
    Request* request = nullptr;  // null: none
    AdamWSettings settings;
    const ops::StepScale* scale = nullptr;
  };
  void update_late(const Context& ctx, Request& next, Rows<T> rows);

  RowPrefetch<T> prefetch_;
  Feed feed_;  // places of the last step's rows in the next
  Deferred deferred_;
  double rows_updated_ = 0;
};

}  // namespace turbogr::embedding
