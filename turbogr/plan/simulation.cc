// What a simulation has found, read.
#include <cmath>
#include <map>

#include "turbogr/core/trace.h"
#include "turbogr/plan/simulator.h"

namespace turbogr::plan {

double Simulation::share(train::StageKind kind) const {
  double seconds = 0;
  for (const StageSeconds& stage : stages) {
    if (stage.kind == kind) seconds += stage.exposed;
  }
  return seconds / step_seconds;
}

void write_trace(const std::string& path, const Simulation& simulation) {
  std::map<int, std::size_t> events_of;
  for (const TracedStage& stage : simulation.trace) ++events_of[stage.rank];
  std::vector<std::string> all;
  for (const auto& [rank, events] : events_of) {
    Trace trace(events, rank);
    trace.name_lane(train::kComputeLane, "this step");
    trace.name_lane(train::kAheadLane, "next step");
    for (const TracedStage& stage : simulation.trace) {
      if (stage.rank != rank) continue;
      trace.record(stage.name, stage.lane, std::llround(stage.begin * 1e9),
                   std::llround(stage.end * 1e9));
    }
    all.push_back(trace.events(0));
  }
  Trace::write_all(path, all);
}

}  // namespace turbogr::plan
