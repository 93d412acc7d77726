#include "turbogr/embedding/host_rows.h"

#include "turbogr/core/device_memory.h"

namespace turbogr::embedding {
namespace {

// Rows of a trace; those between are of row_prefetch.cc.
constexpr int kDeviceLane = 0;
constexpr int kBesideLane = 4;

}  // namespace

template <class T>
HostRows<T>::HostRows(const Context& ctx, const TableOptions& table, std::int64_t most,
                      std::span<const std::int64_t> cached)
    : LocalRows<T>({table}, Device::kPinned),
      prefetch_(ctx, most, table.width),
      cache_(ctx, table.rows, table.width, table.optimiser, cached),
      feed_(ctx, 2 * Feed::room<std::int32_t>(static_cast<std::size_t>(most))) {
  if (ctx.trace() != nullptr) {
    ctx.trace()->name_lane(kBesideLane, "device: beside the forward pass");
  }
}

template <class T>
PlannedBytes HostRows<T>::Request::bytes() const {
  PlannedBytes bytes = LocalRows<T>::Request::bytes();
  bytes += slots_feed.bytes();
  return bytes;
}

template <class T>
std::unique_ptr<RowRequest> HostRows<T>::make_request(const Context& ctx,
                                                      std::span<const std::int64_t> most) const {
  auto request = std::make_unique<Request>();
  const std::size_t room = Feed::room<std::int64_t>(static_cast<std::size_t>(most[0]));
  request->feed = Feed(ctx, room);
  if (!cache_.empty()) request->slots_feed = Feed(ctx, room);
  return request;
}

template <class T>
void HostRows<T>::send_slots(const Context& ctx, Request& request) {
  if (cache_.empty()) return;
  const View<const std::int64_t, 1> ids = request.ids.tables[0].ids();
  request.slots_feed.begin();
  const View<std::int64_t, 1> slots = request.slots_feed.template take<std::int64_t>(ids.shape[0]);
  parallel_ranges(ctx.host().pool(), ids.shape[0], 1 << 14,
                  [&](std::int64_t begin, std::int64_t end, int) {
                    for (std::int64_t i = begin; i < end; ++i) slots(i) = cache_.slot(ids(i));
                  });
  request.slots = request.slots_feed.send(ctx, slots);
  request.slots_feed.end(ctx);
}

// Most rows are there already or on their way, and the last step's update brings those that it
// changes. Slots of rows that the cache does not have are negative: a GPU leaves those rows alone.
template <class T>
void HostRows<T>::fetch(const Context& ctx, Lane, RowRequest& given,
                        std::span<const StepRows<T>> out) {
  auto& request = static_cast<Request&>(given);
  this->send_ids(ctx, request);
  send_slots(ctx, request);
  const TouchedRows* previous =
      deferred_.request == nullptr ? nullptr : &deferred_.request->ids.tables[0];
  prefetch_.fetch(ctx, this->tables_[0].weights(), cache_, previous, request.ids.tables[0],
                  out[0].rows);
  if (deferred_.request != nullptr) update_late(ctx, request, out[0].rows);
  if (!cache_.empty()) cache_.copies().template gather<T>(ctx, request.slots, out[0].rows);
  prefetch_.arrive(ctx);
}

template <class T>
void HostRows<T>::update_cache(const Context& ctx, const Request& last) {
  if (cache_.empty()) return;
  cache_.copies().update(ctx, last.slots, last.gradients[0], deferred_.settings, deferred_.scale);
  cache_ahead_ = true;
}

template <class T>
void HostRows<T>::update_late(const Context& ctx, Request& next, Rows<T> rows) {
  const Request& last = *deferred_.request;
  const std::int64_t count = last.sent_ids[0].shape[0];
  feed_.begin();
  const View<std::int32_t, 1> places = feed_.take<std::int32_t>(count);
  const View<std::int32_t, 1> which = feed_.take<std::int32_t>(count);
  const auto [soon, all] = prefetch_.divide(ctx, cache_, last.ids.tables[0], next.ids.tables[0],
                                            next.ids.inputs, places, which);
  rows_updated_ += static_cast<double>(all);
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
  update_cache(ctx, last);
  update_part(prefetch_.beside(ctx), {{sent.data + soon, {all - soon}}, /*narrow=*/true},
              kBesideLane);
  prefetch_.updated();
  deferred_ = {};
}

template <class T>
void HostRows<T>::update(const Context&, Lane, RowRequest& given, Part,
                         std::span<const AdamWSettings> settings, const ops::StepScale* scale) {
  auto& request = static_cast<Request&>(given);
  deferred_ = {&request, settings[0], scale};
}

// Without a next step to wait for. Rows that have copies are updated in the table, too, which their
// copies then replace.
template <class T>
void HostRows<T>::end_steps(const Context& ctx) {
  prefetch_.spans().collect();
  if (deferred_.request == nullptr && !cache_ahead_) return;
  if (deferred_.request != nullptr) {
    const Request& last = *deferred_.request;
    update_cache(ctx, last);
    this->tables_[0].update(ctx, last.sent_ids[0], last.gradients[0], deferred_.settings,
                            deferred_.scale);
    rows_updated_ += static_cast<double>(last.sent_ids[0].shape[0]);
    deferred_ = {};
  }
  prefetch_.await_update(ctx);
  cache_.write_back(ctx, this->tables_[0]);
  cache_ahead_ = false;
  synchronize(ctx);  // the host reads the table
}

template <class T>
void HostRows<T>::refresh_copies(const Context& ctx) {
  LocalRows<T>::refresh_copies(ctx);
  cache_.load(ctx, this->tables_[0]);
  cache_ahead_ = false;
}

template <class T>
PlannedBytes HostRows<T>::bytes() const {
  PlannedBytes bytes = LocalRows<T>::bytes();
  bytes += prefetch_.bytes();
  bytes += cache_.bytes();
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
