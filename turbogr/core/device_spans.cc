#include "turbogr/core/device_spans.h"

namespace turbogr {
namespace {

constexpr std::size_t kRing = 64;

}  // namespace

DeviceSpans::DeviceSpans(const Context& ctx, bool counting) : trace_(ctx.trace()) {
  if (ctx.device() != Device::kCuda || (trace_ == nullptr && !counting)) return;
  start_ = std::make_unique<Event>(ctx, /*timed=*/true);
  start_->record(ctx);
  start_->wait();
  start_ns_ = Trace::now_ns();
  ring_.resize(kRing);
  for (Marks& marks : ring_) {
    marks.begin = std::make_unique<Event>(ctx, /*timed=*/true);
    marks.end = std::make_unique<Event>(ctx, /*timed=*/true);
  }
}

DeviceSpans::Span DeviceSpans::begin(const Context& stream, const char* name, int lane,
                                     double* seconds) {
  if (ring_.empty()) return 0;
  const Span span = next_;
  next_ = (next_ + 1) % kRing;
  Marks& marks = ring_[span];
  record(marks);  // of many steps ago
  marks.name = name;
  marks.lane = lane;
  marks.seconds = seconds;
  marks.begin->record(stream);
  return span;
}

void DeviceSpans::end(const Context& stream, Span span) {
  if (ring_.empty()) return;
  ring_[span].end->record(stream);
  ring_[span].ended = true;
}

void DeviceSpans::collect() {
  for (std::size_t i = 0; i < ring_.size(); ++i) record(ring_[(next_ + i) % kRing]);
}

void DeviceSpans::record(Marks& marks) {
  if (!marks.ended) return;
  marks.end->wait();
  if (marks.seconds != nullptr) *marks.seconds += marks.end->ms_since(*marks.begin) * 1e-3;
  marks.ended = false;
  if (trace_ == nullptr) return;
  const auto at = [&](const Event& event) {
    return start_ns_ + static_cast<std::int64_t>(event.ms_since(*start_) * 1e6);
  };
  trace_->record(marks.name, marks.lane, at(*marks.begin), at(*marks.end));
}

}  // namespace turbogr
