// From a step's rows to what the model reads and the loss compares, and the gradients' way back.
//
//   tokens.begin(ctx, step);                       // features are pooled, once a step
//   x = tokens.make(ctx, step, batch);             // a row a token: item, features, prefix
//   query = tokens.queries(ctx, batch, out);       // the model's output, of events alone
//   dout = tokens.spread(ctx, batch, dquery);      // and back
//   tokens.take_gradients(ctx, step, batch, dx);   // the items' are summed
//   tokens.end(ctx, step);                         // the features' are summed
//
// Without features a token is its item's row. With output "item" the step's item rows become items
// with their features, in place, so that tokens, targets and negatives all read those; the gradient
// of such a row is that of its item's row and of every feature of it.
#pragma once

#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/planned_bytes.h"
#include "turbogr/core/tensor.h"
#include "turbogr/train/step_in_flight.h"
#include "turbogr/train/step_inputs.h"
#include "turbogr/train/step_options.h"

namespace turbogr::train {

template <class T>
class TokenRows {
 public:
  TokenRows(const Context& ctx, const RetrievalOptions& options, std::int64_t num_items);

  void begin(const Context& ctx, StepInFlight<T>& step);
  // [N', D]; it stays until the next batch, and may be written over.
  Rows<T> make(const Context& ctx, const StepInFlight<T>& step, const BatchInputs<T>& inputs);
  Rows<const T> queries(const Context& ctx, const BatchInputs<T>& inputs, Rows<const T> out);
  // Memory for the gradient of queries [N, D], and that gradient as the model's output has it.
  Rows<T> dqueries(std::int64_t events) { return {dquery_rows(), events, width_, width_}; }
  Rows<const T> spread(const Context& ctx, const BatchInputs<T>& inputs);
  // Adds to the items' gradients.
  void take_gradients(const Context& ctx, const StepInFlight<T>& step, const BatchInputs<T>& inputs,
                      Rows<const T> dx);
  // Makes the features' gradients of what was taken and of the items'.
  void end(const Context& ctx, const StepInFlight<T>& step);

  PlannedBytes bytes() const;

 private:
  T* dquery_rows() { return dquery_.view<T, 2>().data; }
  Rows<T> slots(std::int64_t first, std::int64_t count);
  Rows<T> batch_slots(const StepInFlight<T>& step, const BatchInputs<T>& inputs,
                      std::int64_t count);

  std::int64_t width_, prefix_;
  bool items_;     // they have features of their own
  Tensor rows_;    // [capacity, D], the model's input and later its gradient
  Tensor dquery_;  // [events + 1, D]; with a prefix a row of zeros follows the last
  Tensor events_;  // [capacity, D]: with a prefix the queries, and the gradient of the output
  Tensor slots_;   // features of items, events and sequences, pooled; later their gradients
};

}  // namespace turbogr::train
