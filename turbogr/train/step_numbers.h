// f64 of one step in the device's memory, which nobody waits for: how large its losses and
// gradients are, and what follows from that for its updates.
#pragma once

#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/tensor.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/ops/rows/update.h"

namespace turbogr::train {

class StepNumbers {
 public:
  // Of so many sums of losses and so many tables.
  StepNumbers(const Context& ctx, std::int64_t losses, std::int64_t tables);

  double* dense_squares() { return at(kDense); }
  // Of each table; where gradients return late, the first has all of this rank's.
  double* row_squares() { return at(kRows); }
  double* losses() { return at(kRows + tables_); }
  double* late_squares(embedding::Part part) {  // of gradients that returned after the scale
    return at(part == embedding::Part::kRest ? late_ + tables_ : late_);
  }
  std::int64_t tables() const { return tables_; }
  ops::StepScale* scale() { return reinterpret_cast<ops::StepScale*>(at(0)); }
  // Of rows, where they are not clipped with the dense weights.
  ops::StepScale* row_scale() { return reinterpret_cast<ops::StepScale*>(at(row_scale_)); }
  void clear(const Context& ctx);

  void send(const Context& ctx);  // to the host, where they are once the stream has passed
  struct Known {
    ops::StepScale scale;
    double dense_squares, late_squares;
  };
  // `step`, counted from 1, is for the message of a device that has failed.
  Known wait(std::int64_t step);

 private:
  static constexpr std::int64_t kScale = 4;  // f64 of a StepScale
  static constexpr std::int64_t kDense = kScale, kRows = kDense + 1;
  double* at(std::int64_t place) { return values_.view<double, 1>().data + place; }

  std::int64_t tables_, late_, row_scale_;
  Tensor values_, on_host_;
  Event sent_;
};

}  // namespace turbogr::train
