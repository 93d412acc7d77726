#include "turbogr/core/feed.h"

#include <algorithm>

#include "turbogr/core/check.h"

namespace turbogr {

Feed::Slot Feed::make_slot(const Context& ctx, std::size_t bytes) {
  const auto size = static_cast<std::int64_t>(bytes);
  const bool gpu = ctx.device() == Device::kCuda;
  Slot slot;
  slot.sent = std::make_unique<Event>(ctx);
  slot.host = Tensor(DType::kU8, {size}, gpu ? Device::kPinned : Device::kCpu);
  if (gpu) slot.device = Tensor(DType::kU8, {size}, Device::kCuda);
  return slot;
}

Feed::Feed(const Context& ctx, std::size_t bytes, Sends sends) : sends_(sends) {
  for (Slot& slot : slots_) slot = make_slot(ctx, bytes);
}

void Feed::begin() {
  current_ = 1 - current_;
  slots_[current_].sent->wait();
  used_ = flushed_ = 0;
}

void Feed::begin(const Context& ctx, std::size_t bytes) {
  current_ = 1 - current_;
  used_ = flushed_ = 0;
  Slot& slot = slots_[current_];
  if (slot.sent) slot.sent->wait();
  if (slot.host.bytes() < bytes || !slot.sent) {
    slot = make_slot(ctx, std::max(bytes + bytes / 4, kAlignment));
  }
}

void Feed::end(const Context& ctx) { slots_[current_].sent->record(ctx); }

std::byte* Feed::take_bytes(std::size_t bytes) {
  Slot& slot = slots_[current_];
  TGR_CHECK(bytes <= slot.host.bytes() - used_, "a step's inputs need ", used_ + bytes,
            " bytes where ", slot.host.bytes(),
            " were planned for; raise train.tokens or lower train.batch");
  std::byte* start = slot.host.data() + used_;
  used_ = std::min(slot.host.bytes(), used_ + room<std::byte>(bytes));
  return start;
}

std::byte* Feed::device_address(const void* host) {
  Slot& slot = slots_[current_];
  const std::ptrdiff_t offset = static_cast<const std::byte*>(host) - slot.host.data();
  return (slot.device.bytes() > 0 ? slot.device.data() : slot.host.data()) + offset;
}

const std::byte* Feed::send_bytes(const Context& ctx, const void* host, std::size_t bytes) {
  std::byte* to = device_address(host);
  if (to != host && sends_ == Sends::kAtOnce) copy_bytes(ctx, to, host, bytes);
  return to;
}

void Feed::flush(const Context& ctx) {
  Slot& slot = slots_[current_];
  if (slot.device.bytes() > 0) {
    copy_bytes(ctx, slot.device.data() + flushed_, slot.host.data() + flushed_, used_ - flushed_);
  }
  flushed_ = used_;
}

void Feed::send_all(const Context& ctx) {
  send_bytes(ctx, slots_[current_].host.data(), used_);
  end(ctx);
}

PlannedBytes Feed::bytes() const {
  PlannedBytes bytes;
  for (const Slot& slot : slots_) {
    bytes.add(slot.host);
    bytes.add(slot.device);
  }
  return bytes;
}

}  // namespace turbogr
