#include "turbogr/plan/stage_program.h"

namespace turbogr::plan {
namespace {

using embedding::Lane;
using embedding::Part;

struct PlannedFlight {
  int step = 0;
  bool rows_late = false;
};

// What a trainer would run, written down.
class RecordedStages {
 public:
  RecordedStages(StageProgram& program, const ProgramOptions& options)
      : program_(program), options_(options) {}

  void prepare(Lane lane, PlannedFlight& f) { add({Act::kPrepare, lane, f.step}); }
  void fetch(Lane lane, PlannedFlight& f) { add({Act::kFetch, lane, f.step}); }
  void compute(PlannedFlight& f) {
    add({Act::kForward, Lane::kThis, f.step, Part::kAll, f.rows_late});
    for (std::int64_t layer = 0; layer < options_.layers; ++layer) {
      add({Act::kBackward, Lane::kThis, f.step});
    }
  }
  void return_rows(Lane lane, PlannedFlight& f, Part part) {
    add({Act::kReturn, lane, f.step, part, f.rows_late});
  }
  void update_dense(PlannedFlight& f) {
    add({Act::kDenseSums, Lane::kThis, f.step});
    add({Act::kDenseUpdate, Lane::kThis, f.step});
  }
  void update_rows(Lane lane, PlannedFlight& f, Part part) {
    add({Act::kRowUpdate, lane, f.step, part});
  }
  void finish(Lane, PlannedFlight&) {}
  bool fetches_ahead() const { return options_.fetches_ahead; }
  void plan_refresh(PlannedFlight& next, PlannedFlight&, bool) {
    add({Act::kPlanRefresh, Lane::kNext, next.step});
  }
  void refresh(PlannedFlight& next) { add({Act::kRefresh, Lane::kThis, next.step}); }
  template <class Work>
  void start_ahead(Work work) {
    add({Act::kStartAhead, Lane::kThis});
    work(*this);
    program_.begins.push_back(program_.ahead.size());
  }
  void join() { add({Act::kJoin, Lane::kThis}); }

  void add(const StageCall& call) {
    (call.lane == Lane::kThis ? program_.computing : program_.ahead).push_back(call);
  }

 private:
  StageProgram& program_;
  const ProgramOptions& options_;
};

}  // namespace

StageProgram make_program(const ProgramOptions& options) {
  StageProgram program;
  program.begins.push_back(0);
  RecordedStages stages(program, options);
  train::StepOrder<PlannedFlight> order(options.order);
  std::vector<PlannedFlight> flights(static_cast<std::size_t>(options.steps));
  for (int step = 0; step < options.steps; ++step) {
    PlannedFlight& flight = flights[static_cast<std::size_t>(step)];
    flight.step = step;
    // As RetrievalTrainer::submit does.
    if (order.holds_step()) {
      order.advance(stages, step, flight);
      stages.add({Act::kStepEnd, Lane::kThis, step - 1});
      continue;
    }
    if (order.serial() && step + 1 == options.steps) break;
    stages.prepare(Lane::kThis, flight);
    stages.fetch(Lane::kThis, flight);
    if (order.serial()) {
      order.whole_step(stages, flight);
      stages.add({Act::kStepEnd, Lane::kThis, step});
    } else {
      order.hold(flight);
    }
  }
  return program;
}

}  // namespace turbogr::plan
