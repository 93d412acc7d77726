// Tables that are counted and not made, for plans of runs that this machine need not have room for.
#pragma once

#include <memory>

#include "turbogr/core/check.h"
#include "turbogr/embedding/row_source.h"

namespace turbogr::embedding {

template <class T>
class PlannedRows final : public RowSource<T> {
 public:
  // `request` bytes on the device for each step on its way.
  PlannedRows(const PlannedBytes& tables, std::size_t request)
      : tables_(tables), request_(request) {}

  std::unique_ptr<RowRequest> make_request(const Context& ctx,
                                           std::span<const std::int64_t>) const override {
    auto request = std::make_unique<Request>();
    request->planned.add(ctx.device(), request_);
    return request;
  }
  PlannedBytes bytes() const override { return tables_; }

  void initialise(const Context&) override { fail(); }
  void prepare(const Context&, Lane, const StepIds&, RowRequest&) override { fail(); }
  void fetch(const Context&, Lane, RowRequest&, std::span<const StepRows<T>>) override { fail(); }
  void return_gradients(const Context&, Lane, RowRequest&, Part, std::span<const Rows<const float>>,
                        double*) override {
    fail();
  }
  void update(const Context&, Lane, RowRequest&, Part, std::span<const AdamWSettings>,
              const ops::StepScale*) override {
    fail();
  }
  void gather(const Context&, std::size_t, View<const std::int64_t, 1>, Rows<T>) override {
    fail();
  }
  ItemTable& shard(std::size_t) override { fail(); }
  const Sharding& sharding(std::size_t) const override { fail(); }

 private:
  struct Request : RowRequest {
    PlannedBytes planned;
    PlannedBytes bytes() const override { return planned; }
  };
  [[noreturn]] static void fail() { detail::throw_error("a plan has no rows to train"); }

  PlannedBytes tables_;
  std::size_t request_;
};

}  // namespace turbogr::embedding
