// In which order the stages of steps run under each schedule (schedules.h), whatever the stages do:
// RetrievalTrainer runs them, plan/ times them.
//
// Flight is a step on its way and has `bool rows_late`; Stages has
//   prepare(lane, flight), fetch(lane, flight), compute(flight), return_rows(lane, flight, part),
//   update_dense(flight), update_rows(lane, flight, part), finish(lane, flight)
//   fetches_ahead()                       whether rows are worth fetching while a step computes
//   plan_refresh(next, current, split)    which rows of `next` the update of `current` changes
//   refresh(next)                         brings those
//   start_ahead(work), join()             runs work(stages) beside what follows; waits for it
#pragma once

#include <cstdint>
#include <utility>

#include "turbogr/embedding/row_source.h"
#include "turbogr/train/step_options.h"

namespace turbogr::train {

struct StepOrderOptions {
  StepSchedule schedule = StepSchedule::kSerial;
  bool clips = false;       // the norm needs every gradient before the dense update
  std::int64_t warmup = 0;  // semi_async: steps without delay
};

template <class Flight>
class StepOrder {
 public:
  using Lane = embedding::Lane;
  using Part = embedding::Part;

  explicit StepOrder(const StepOrderOptions& options) : options_(options) {}

  bool serial() const { return options_.schedule == StepSchedule::kSerial; }
  bool holds_step() const { return held_ != nullptr; }  // prepared, not computed

  // A step whose rows are here, to its end.
  template <class Stages>
  static void whole_step(Stages& stages, Flight& step) {
    stages.compute(step);
    stages.return_rows(Lane::kThis, step, Part::kAll);
    stages.update_dense(step);
    stages.update_rows(Lane::kThis, step, Part::kAll);
    stages.finish(Lane::kThis, step);
  }

  // The first step of a pipeline: its rows are here, its successor is not known yet.
  void hold(Flight& step) { held_ = &step; }

  // Computes the step held, number `index`, while the one before it ends and `next` is prepared.
  template <class Stages>
  void advance(Stages& stages, std::int64_t index, Flight& next) {
    Flight& current = *std::exchange(held_, nullptr);
    Flight* const late = std::exchange(late_, nullptr);
    const bool exact = options_.schedule == StepSchedule::kExactPrefetch && stages.fetches_ahead();
    // Its successor may miss the update of this step.
    const bool missed = options_.schedule == StepSchedule::kSemiAsync && index >= options_.warmup;
    // Without clipping nobody waits for gradients of rows that the next step does not read.
    const bool parted = exact && !options_.clips;
    current.rows_late = parted || (missed && !options_.clips);
    stages.start_ahead([=, this, &current, &next](Stages& ahead) {
      if (late != nullptr) end_late(ahead, Lane::kNext, *late);
      ahead.prepare(Lane::kNext, next);
      if (exact || missed) ahead.fetch(Lane::kNext, next);
      if (exact) ahead.plan_refresh(next, current, parted);
    });
    stages.compute(current);
    if (!current.rows_late) stages.return_rows(Lane::kThis, current, Part::kAll);
    stages.update_dense(current);
    stages.join();  // what is fetched ahead is read before the update
    if (missed) {
      late_ = &current;
    } else if (parted) {
      stages.return_rows(Lane::kThis, current, Part::kNextReads);
      stages.update_rows(Lane::kThis, current, Part::kNextReads);
      late_ = &current;
    } else {
      stages.update_rows(Lane::kThis, current, Part::kAll);
      stages.finish(Lane::kThis, current);
    }
    if (exact) {
      stages.refresh(next);
    } else if (!missed) {
      stages.fetch(Lane::kThis, next);
    }
    held_ = &next;
  }

  // Ends all that is under way.
  template <class Stages>
  void drain(Stages& stages) {
    if (late_ != nullptr) end_late(stages, Lane::kThis, *std::exchange(late_, nullptr));
    if (held_ != nullptr) whole_step(stages, *std::exchange(held_, nullptr));
  }

 private:
  // What a step has left for later.
  template <class Stages>
  void end_late(Stages& stages, Lane lane, Flight& step) const {
    const Part part = options_.schedule == StepSchedule::kSemiAsync ? Part::kAll : Part::kRest;
    // Clipping has had all gradients returned before the dense update.
    if (step.rows_late) stages.return_rows(lane, step, part);
    stages.update_rows(lane, step, part);
    stages.finish(lane, step);
  }

  StepOrderOptions options_;
  Flight* held_ = nullptr;
  Flight* late_ = nullptr;  // computed, rows not all updated
};

}  // namespace turbogr::train
