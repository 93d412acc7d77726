#include "turbogr/embedding/host_rows.h"

#include "turbogr/core/device_memory.h"

namespace turbogr::embedding {
namespace {

// Rows of a trace; those between are of row_prefetch.cc.
constexpr int kDeviceLane = 0;
constexpr int kBesideLane = 4;

}  // namespace

template <class T>
HostRows<T>::HostRows(const Context& ctx, const TableOptions& table, std::int64_t most)
    : LocalRows<T>({table}, Device::kPinned),
      prefetch_(ctx, most, table.width),
      feed_(ctx, 2 * Feed::room<std::int32_t>(static_cast<std::size_t>(most))) {
  if (ctx.trace() != nullptr) {
    ctx.trace()->name_lane(kBesideLane, "device: beside the forward pass");
  }
}

// Most rows are there already or on their way, and the last step's update brings those that it
// changes.
template <class T>
void HostRows<T>::fetch(const Context& ctx, Lane, RowRequest& given,
                        std::span<const StepRows<T>> out) {
  auto& request = static_cast<Request&>(given);
  this->send_ids(ctx, request);
  const TouchedRows* previous =
      deferred_.request == nullptr ? nullptr : &deferred_.request->ids.tables[0];
  prefetch_.fetch(ctx, this->tables_[0].weights(), previous, request.ids.tables[0], out[0].rows);
  if (deferred_.request != nullptr) update_late(ctx, request, out[0].rows);
  prefetch_.arrive(ctx);
}

template <class T>
void HostRows<T>::update_late(const Context& ctx, Request& next, Rows<T> rows) {
  const Request& last = *deferred_.request;
  const std::int64_t count = last.sent_ids[0].shape[0];
  feed_.begin();
  const View<std::int32_t, 1> places = feed_.take<std::int32_t>(count);
  const View<std::int32_t, 1> which = feed_.take<std::int32_t>(count);
  const std::int64_t soon =
      prefetch_.divide(ctx, last.ids.tables[0], next.ids.tables[0], next.ids.inputs, places, which);
  const ops::RowCopies<T> copies = {feed_.send(ctx, places), rows};
  const View<const std::int32_t, 1> sent = feed_.send(ctx, which);
  feed_.end(ctx);
  const auto update_part = [&](const Context& stream, const ops::RowPart& part, int lane) {
    const DeviceSpans::Span span =
        prefetch_.spans().begin(stream, "update rows over the link", lane);
    this->tables_[0].update(stream, last.sent_ids[0], last.gradients[0], deferred_.settings,
                            deferred_.scale, copies, part);
    prefetch_.spans().end(stream, span);
  };
  update_part(ctx, {{sent.data, {soon}}}, kDeviceLane);
  update_part(prefetch_.beside(ctx), {{sent.data + soon, {count - soon}}, /*narrow=*/true},
              kBesideLane);
  prefetch_.updated();
  deferred_ = {};
}

template <class T>
void HostRows<T>::update(const Context&, Lane, RowRequest& given, Part,
                         std::span<const AdamWSettings> settings, const ops::StepScale* scale) {
  auto& request = static_cast<Request&>(given);
  deferred_ = {&request, settings[0], scale};
  rows_updated_ += static_cast<double>(request.sent_ids[0].shape[0]);
}

// Without a next step to wait for.
template <class T>
void HostRows<T>::end_steps(const Context& ctx) {
  prefetch_.spans().collect();
  if (deferred_.request == nullptr) return;
  const Request& last = *deferred_.request;
  this->tables_[0].update(ctx, last.sent_ids[0], last.gradients[0], deferred_.settings,
                          deferred_.scale);
  synchronize(ctx);  // the host reads the table
  deferred_ = {};
}

template <class T>
PlannedBytes HostRows<T>::bytes() const {
  PlannedBytes bytes = LocalRows<T>::bytes();
  bytes += prefetch_.bytes();
  bytes += feed_.bytes();
  return bytes;
}

template <class T>
typename RowSource<T>::LinkBytes HostRows<T>::link_bytes() const {
  const TableOptions& table = this->options_[0];
  const auto width = static_cast<double>(table.width);
  // An update reads and writes weights and, of AdamW, two moments.
  const double state = table.optimiser == SparseOptimiser::kAdamW ? 3 * 4 : 4;
  const double updates = rows_updated_ * width * state;
  return {static_cast<double>(prefetch_.rows_sent()) * width * sizeof(T) + updates, updates};
}

template class HostRows<float>;
template class HostRows<bf16>;

}  // namespace turbogr::embedding
