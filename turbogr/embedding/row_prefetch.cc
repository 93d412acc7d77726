#include "turbogr/embedding/row_prefetch.h"

#include <algorithm>

#include "turbogr/ops/rows/embedding.h"

namespace turbogr::embedding {
namespace {

// Rows of a trace.
constexpr int kHostLane = 1;
constexpr int kCopyLane = 2;

}  // namespace

template <class T>
RowPrefetch<T>::RowPrefetch(const Context& ctx, std::int64_t most, std::int64_t width,
                            std::int64_t segment_bytes)
    : copy_({.device = ctx.device(), .threads = 1, .trace = ctx.trace()}),
      beside_({.device = ctx.device(), .threads = 1}),
      spans_(copy_) {
  const Device device = ctx.device();
  const Device host = device == Device::kCuda ? Device::kPinned : Device::kCpu;
  const std::int64_t rows = std::clamp<std::int64_t>(
      segment_bytes / std::max<std::int64_t>(1, width * static_cast<std::int64_t>(sizeof(T))), 1,
      std::max<std::int64_t>(1, most));
  for (Segment& segment : segments_) {
    segment.host_rows = Tensor(dtype_of<T>(), {rows, width}, host);
    segment.host_places = Tensor(DType::kI32, {rows}, host);
    segment.rows = Tensor(dtype_of<T>(), {rows, width}, device);
    segment.places = Tensor(DType::kI32, {rows}, device);
    segment.copied = std::make_unique<Event>(ctx);
  }
  released_ = std::make_unique<Event>(ctx);
  reached_ = std::make_unique<Event>(ctx);
  updated_ = std::make_unique<Event>(ctx);
  arrived_ = std::make_unique<Event>(ctx);
  ids_.reserve(static_cast<std::size_t>(most));
  arrive_.reserve(static_cast<std::size_t>(most));
  soon_.resize(static_cast<std::size_t>(most));
  if (ctx.trace() != nullptr) {
    ctx.trace()->name_lane(kHostLane, "host: rows of the next step");
    ctx.trace()->name_lane(kCopyLane, "link: rows of the next step");
  }
}

template <class T>
void RowPrefetch<T>::fetch(const Context& ctx, Rows<const float> table, const RowCache& cache,
                           const TouchedRows* previous, const TouchedRows& next, Rows<T> rows) {
  const View<const std::int64_t, 1> wanted = next.ids();
  ids_.clear();
  arrive_.clear();
  for (std::int64_t i = 0; i < wanted.shape[0]; ++i) {
    if (cache.slot(wanted(i)) >= 0) continue;
    if (previous != nullptr && previous->find(wanted(i)) >= 0) continue;
    ids_.push_back(wanted(i));
    arrive_.push_back(static_cast<std::int32_t>(i));
  }
  const auto count = static_cast<std::int64_t>(ids_.size());
  rows_sent_ += count;
  // Rows of the step before the last may still be on their way into the table.
  updated_->wait();
  released_->wait_on(copy_);
  const DeviceSpans::Span span = spans_.begin(copy_, "rows ahead", kCopyLane);
  const std::int64_t room = segments_[0].host_places.size();
  std::size_t turn = 0;
  for (std::int64_t first = 0; first < count; first += room, turn = 1 - turn) {
    Segment& segment = segments_[turn];
    const std::int64_t part = std::min(room, count - first);
    segment.copied->wait();
    {
      const TraceScope scope(ctx.trace(), "gather rows ahead", kHostLane);
      const Rows<T> filled(reinterpret_cast<T*>(segment.host_rows.data()), part, table.cols,
                           table.cols);
      ops::gather_rows<float, T>(ctx.host(), table, {ids_.data() + first, {part}}, filled);
      std::copy_n(arrive_.data() + first, part,
                  segment.host_places.template view<std::int32_t, 1>().data);
    }
    const auto elements = static_cast<std::size_t>(part * table.cols);
    copy_bytes(copy_, segment.rows.data(), segment.host_rows.data(), elements * sizeof(T));
    copy_bytes(copy_, segment.places.data(), segment.host_places.data(),
               static_cast<std::size_t>(part) * sizeof(std::int32_t));
    segment.copied->record(copy_);
    const Rows<const T> arrived(reinterpret_cast<const T*>(segment.rows.data()), part, table.cols,
                                table.cols);
    const View<const std::int32_t, 1> places = {
        segment.places.template view<std::int32_t, 1>().data, {part}};
    ops::place_rows<T>(copy_, arrived, places, rows);
  }
  spans_.end(copy_, span);
  arrived_->record(copy_);
}

template <class T>
typename RowPrefetch<T>::Division RowPrefetch<T>::divide(
    const Context& ctx, const RowCache& cache, const TouchedRows& previous, const TouchedRows& next,
    std::span<const View<const std::int64_t, 1>> inputs, View<std::int32_t, 1> places,
    View<std::int32_t, 1> which) {
  const View<const std::int64_t, 1> ids = previous.ids();
  parallel_ranges(ctx.host().pool(), ids.shape[0], 1 << 14,
                  [&](std::int64_t begin, std::int64_t end, int) {
                    for (std::int64_t i = begin; i < end; ++i) places(i) = next.find(ids(i));
                  });
  std::fill_n(soon_.begin(), next.ids().shape[0], std::uint8_t{0});
  for (const View<const std::int64_t, 1>& items : inputs) {
    for (std::int64_t i = 0; i < items.shape[0]; ++i) {
      soon_[static_cast<std::size_t>(next.find(items(i)))] = 1;
    }
  }
  const auto count = static_cast<std::int32_t>(ids.shape[0]);
  const auto wanted_soon = [&](std::int32_t i) {
    return places(i) >= 0 && soon_[static_cast<std::size_t>(places(i))] != 0;
  };
  const auto append = [&](std::int64_t at, bool soon) {
    for (std::int32_t i = 0; i < count; ++i) {
      if (wanted_soon(i) == soon && cache.slot(ids(i)) < 0) which(at++) = i;
    }
    return at;
  };
  Division division;
  division.soon = append(0, true);
  division.all = append(division.soon, false);
  return division;
}

template <class T>
const Context& RowPrefetch<T>::beside(const Context& ctx) {
  reached_->record(ctx);
  reached_->wait_on(beside_);
  return beside_;
}

template <class T>
PlannedBytes RowPrefetch<T>::bytes() const {
  PlannedBytes bytes;
  for (const Segment& segment : segments_) {
    for (const Tensor* tensor :
         {&segment.host_rows, &segment.host_places, &segment.rows, &segment.places}) {
      bytes.add(*tensor);
    }
  }
  bytes.host += soon_.size() * (sizeof(std::int64_t) + sizeof(std::int32_t) + sizeof(std::uint8_t));
  return bytes;
}

template class RowPrefetch<float>;
template class RowPrefetch<bf16>;

}  // namespace turbogr::embedding
