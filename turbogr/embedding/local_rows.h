// Tables whose rows all are in this device's memory, or in pinned host memory that a GPU reads over
// the link.
#pragma once

#include <memory>
#include <vector>

#include "turbogr/core/feed.h"
#include "turbogr/embedding/half_table.h"
#include "turbogr/embedding/row_source.h"

namespace turbogr::embedding {

template <class T>
class LocalRows : public RowSource<T> {
 public:
  // `memory`: the context's device, or pinned memory of a GPU's host.
  LocalRows(const std::vector<TableOptions>& tables, Device memory);

  void initialise(const Context& ctx) override;
  std::unique_ptr<RowRequest> make_request(const Context& ctx,
                                           std::span<const std::int64_t> most) const override;
  void prepare(const Context& ctx, Lane lane, const StepIds& ids, RowRequest& request) override;
  void fetch(const Context& ctx, Lane lane, RowRequest& request,
             std::span<const StepRows<T>> out) override;
  void return_gradients(const Context& ctx, Lane lane, RowRequest& request, Part part,
                        std::span<const Rows<const float>> gradients, double* squares) override;
  void update(const Context& ctx, Lane lane, RowRequest& request, Part part,
              std::span<const AdamWSettings> settings, const ops::StepScale* scale) override;
  void refresh_copies(const Context& ctx) override;
  void gather(const Context& ctx, std::size_t table, View<const std::int64_t, 1> ids,
              Rows<T> out) override;
  ItemTable& shard(std::size_t table) override { return tables_[table]; }
  const Sharding& sharding(std::size_t table) const override { return whole_[table]; }
  PlannedBytes bytes() const override;

 protected:
  struct Request : RowRequest {
    StepIds ids;
    Feed feed;
    std::vector<View<const std::int64_t, 1>> sent_ids;  // of each table, on the device
    std::vector<Rows<const float>> gradients;
    PlannedBytes bytes() const override { return feed.bytes(); }
  };
  void send_ids(const Context& ctx, Request& request);

  std::vector<TableOptions> options_;
  Device memory_;
  std::vector<ItemTable> tables_;
  std::vector<HalfTable> half_copies_;
  std::vector<Sharding> whole_;  // in one part
  Feed gather_feed_;
};

}  // namespace turbogr::embedding
