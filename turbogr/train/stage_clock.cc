#include "turbogr/train/stage_clock.h"

#include <string_view>

namespace turbogr::train {
namespace {

int row_of(const Context& ctx, const Stage& stage, Lane lane) {
  if (ctx.device() == Device::kCuda && stage.on_host) return kHostLane;
  return lane == Lane::kThis ? kComputeLane : kAheadLane;
}

}  // namespace

StageClock::StageClock(const Context& ctx, const Context& next, bool counting)
    : counting_(counting), spans_{DeviceSpans(ctx, counting), DeviceSpans(next)} {
  if (ctx.trace() == nullptr) return;
  ctx.trace()->name_lane(kComputeLane, "this step");
  if (counting) ctx.trace()->name_lane(kAheadLane, "next step");
  if (ctx.device() == Device::kCuda) ctx.trace()->name_lane(kHostLane, "host: draws, ids");
}

double* StageClock::place_of(const Stage& stage) {
  if (!counting_) return nullptr;
  for (std::size_t i = 0; i < kStages.size(); ++i) {
    if (std::string_view(kStages[i].name) == stage.name) return &seconds_[i];
  }
  return nullptr;
}

StageTimes StageClock::times() const {
  StageTimes times;
  times.by_stage = seconds_;
  for (std::size_t i = 0; i < kStages.size(); ++i) {
    if (kStages[i].kind == StageKind::kCompute) times.compute += seconds_[i];
    if (kStages[i].kind == StageKind::kSparse) times.sparse_communication += seconds_[i];
    if (kStages[i].kind == StageKind::kDense) times.dense_communication += seconds_[i];
  }
  return times;
}

StageClock::Scope::Scope(StageClock& clock, const Context& ctx, const Stage& stage, Lane lane)
    : clock_(clock),
      ctx_(ctx),
      lane_(lane),
      on_host_(ctx.device() == Device::kCpu || stage.on_host),
      trace_(on_host_ ? ctx.trace() : nullptr, stage.name, row_of(ctx, stage, lane)),
      seconds_(lane == Lane::kThis ? clock.place_of(stage) : nullptr) {
  if (ctx.device() == Device::kCuda && stage.on_host) seconds_ = nullptr;  // the device goes on
  if (on_host_) {
    begin_ns_ = Trace::now_ns();
  } else {
    span_ = clock.spans(lane).begin(ctx, stage.name, row_of(ctx, stage, lane), seconds_);
  }
}

StageClock::Scope::~Scope() {
  if (!on_host_) {
    clock_.spans(lane_).end(ctx_, span_);
  } else if (seconds_ != nullptr) {
    *seconds_ += static_cast<double>(Trace::now_ns() - begin_ns_) * 1e-9;
  }
}

void StageClock::collect() {
  for (DeviceSpans& spans : spans_) spans.collect();
}

}  // namespace turbogr::train
