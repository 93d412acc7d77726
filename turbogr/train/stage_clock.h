// Where the time of a step goes, stage by stage: the host's clock on a CPU, the stream's on a GPU,
// where the host is elsewhere. For traces, and for the shares of computing and of waiting for
// others.
//
//   StageClock clock(ctx, next_ctx, /*counting=*/ranks > 1);
//   { const StageClock::Scope scope = clock.enter(ctx, stages::kFetch, Lane::kThis); ... }
//   clock.collect();                          // once the device has passed
#pragma once

#include <array>

#include "turbogr/core/context.h"
#include "turbogr/core/device_spans.h"
#include "turbogr/core/trace.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/train/stages.h"

namespace turbogr::train {

using embedding::Lane;

// In seconds. What runs beside, for the next step, costs nobody anything.
struct StageTimes {
  double compute = 0;               // forward, backward, updates, drawing
  double dense_communication = 0;   // sums of dense gradients not hidden behind the backward pass
  double sparse_communication = 0;  // ids, rows and their gradients not hidden behind computing
  std::array<double, kStages.size()> by_stage = {};  // of a trainer; not of differences

  StageTimes operator-(const StageTimes& earlier) const {
    return {compute - earlier.compute, dense_communication - earlier.dense_communication,
            sparse_communication - earlier.sparse_communication};
  }
};

class StageClock {
 public:
  StageClock(const Context& ctx, const Context& next, bool counting);

  class Scope {
   public:
    Scope(StageClock& clock, const Context& ctx, const Stage& stage, Lane lane);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    StageClock& clock_;
    const Context& ctx_;
    Lane lane_;
    bool on_host_;
    TraceScope trace_;
    double* seconds_;
    std::int64_t begin_ns_ = 0;
    DeviceSpans::Span span_ = 0;
  };
  Scope enter(const Context& ctx, const Stage& stage, Lane lane) {
    return {*this, ctx, stage, lane};
  }

  // Only where no stage is under way on either lane.
  void collect();
  StageTimes times() const;

 private:
  double* place_of(const Stage& stage);
  DeviceSpans& spans(Lane lane) { return spans_[static_cast<std::size_t>(lane)]; }

  bool counting_;
  std::array<DeviceSpans, 2> spans_;
  std::array<double, kStages.size()> seconds_ = {};
};

}  // namespace turbogr::train
