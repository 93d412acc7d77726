#include "turbogr/train/step_feed.h"

#include "turbogr/core/check.h"

namespace turbogr::train {
namespace {

constexpr std::size_t kAlignment = 256;

}  // namespace

StepFeed::StepFeed(const Context& ctx, std::size_t bytes) {
  const auto size = static_cast<std::int64_t>(bytes);
  for (Slot& slot : slots_) {
    slot.sent = std::make_unique<Event>(ctx);
    slot.host =
        Tensor(DType::kU8, {size}, ctx.device() == Device::kCuda ? Device::kPinned : Device::kCpu);
    if (ctx.device() == Device::kCuda) slot.device = Tensor(DType::kU8, {size}, Device::kCuda);
  }
}

void StepFeed::begin() {
  current_ = 1 - current_;
  slots_[current_].sent->wait();
  used_ = 0;
}

void StepFeed::end(const Context& ctx) { slots_[current_].sent->record(ctx); }

std::byte* StepFeed::take_bytes(std::size_t bytes) {
  Slot& slot = slots_[current_];
  TGR_CHECK(bytes <= slot.host.bytes() - used_, "a step's inputs need ", used_ + bytes,
            " bytes where ", slot.host.bytes(),
            " were planned for; raise train.tokens or lower train.batch");
  std::byte* start = slot.host.data() + used_;
  used_ = std::min(slot.host.bytes(), (used_ + bytes + kAlignment - 1) / kAlignment * kAlignment);
  return start;
}

const std::byte* StepFeed::send_bytes(const Context& ctx, const void* host, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(host);
  if (ctx.device() == Device::kCpu) return from;
  Slot& slot = slots_[current_];
  std::byte* to = slot.device.data() + (from - slot.host.data());
  copy_bytes(ctx, to, from, bytes);
  return to;
}

PlannedBytes StepFeed::bytes() const {
  PlannedBytes bytes;
  for (const Slot& slot : slots_) {
    bytes.add(slot.host);
    bytes.add(slot.device);
  }
  return bytes;
}

}  // namespace turbogr::train
