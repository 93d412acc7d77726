// What a simulation has found, read.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

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

namespace {

double bytes_out(const std::vector<LinkUse>& links) {
  return std::accumulate(links.begin(), links.end(), 0.0,
                         [](double sum, const LinkUse& link) { return sum + link.out_bytes; });
}

}  // namespace

double Simulation::nic_bytes() const { return bytes_out(nics) / machines; }
double Simulation::local_bytes() const {
  return bytes_out(ports) / static_cast<double>(ports.size());
}

double Simulation::mfu(const SimulationSetup& setup) const {
  const double devices = static_cast<double>(setup.nodes.size()) / setup.sharing;
  return causal_flops / devices / step_seconds / (setup.gpu.peak_tflops.value * 1e12);
}

std::string name_of_nic(const Simulation& simulation, std::size_t nic) {
  const std::size_t each = simulation.nics.size() / static_cast<std::size_t>(simulation.machines);
  return "NIC " + std::to_string(nic % each) + " of machine " + std::to_string(nic / each);
}

std::vector<Resource> busiest(const Simulation& simulation) {
  std::vector<Resource> found;
  const auto add = [&](std::size_t count, auto&& seconds_of, auto&& name_of) {
    std::size_t most = 0;
    for (std::size_t i = 1; i < count; ++i) {
      if (seconds_of(i) > seconds_of(most)) most = i;
    }
    const double share = count == 0 ? 0 : seconds_of(most) / simulation.step_seconds;
    if (share > 0) found.push_back({name_of(most), share});
  };
  const auto of_rank = [](const char* what) {
    return [what](std::size_t rank) { return what + std::to_string(rank); };
  };
  add(
      simulation.device_seconds.size(), [&](std::size_t i) { return simulation.device_seconds[i]; },
      of_rank("computing of rank "));
  add(
      simulation.host_seconds.size(), [&](std::size_t i) { return simulation.host_seconds[i]; },
      of_rank("host of rank "));
  add(
      simulation.host_link_seconds.size(),
      [&](std::size_t i) { return simulation.host_link_seconds[i]; },
      of_rank("host link of rank "));
  add(
      simulation.ports.size(), [&](std::size_t i) { return simulation.ports[i].seconds(); },
      of_rank("port of rank "));
  add(
      simulation.nics.size(), [&](std::size_t i) { return simulation.nics[i].seconds(); },
      [&](std::size_t i) { return name_of_nic(simulation, i); });
  std::stable_sort(found.begin(), found.end(),
                   [](const Resource& a, const Resource& b) { return a.share > b.share; });
  return found;
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
