// What the stages of a step over ranks share: their scope in trace and times, and where a flight's
// numbers stand.
#pragma once

#include <cstdint>

#include "turbogr/core/tensor.h"
#include "turbogr/core/trace.h"
#include "turbogr/train/stages.h"

namespace turbogr::train {

// A trace event, and its length added to `seconds`, when there is a place for it.
class StageScope {
 public:
  StageScope(Trace* trace, const Stage& stage, int lane, double* seconds)
      : scope_(trace, stage.name, lane), seconds_(seconds), begin_ns_(Trace::now_ns()) {}
  ~StageScope() {
    if (seconds_ != nullptr) {
      *seconds_ += static_cast<double>(Trace::now_ns() - begin_ns_) * 1e-9;
    }
  }
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;

 private:
  TraceScope scope_;
  double* seconds_;
  std::int64_t begin_ns_;
};

// Places in a flight's numbers.
inline constexpr std::int64_t kDenseScale = 0;  // a StepScale
inline constexpr std::int64_t kRowScale = 4;    // another
inline constexpr std::int64_t kOtherRowScale = 8;
inline constexpr std::int64_t kDenseSquares = 12;
inline constexpr std::int64_t kRowSquares = 13;
inline constexpr std::int64_t kLossSums = 14;  // of each batch

inline double* numbers_at(Tensor& numbers, std::int64_t place) {
  return numbers.view<double, 1>().data + place;
}

}  // namespace turbogr::train
