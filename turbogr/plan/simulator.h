// A cluster that trains, without computing anything: the stages of steps run in the order that
// train/step_order.h gives them, on every rank; each takes the time that a device's description
// gives it, or that its messages (dist/message_rounds.h) take over the links of the network. The
// same inputs give the same result.
//
//   const Simulation result = simulate(setup, drawn.steps, routes);
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "turbogr/core/dtype.h"
#include "turbogr/dist/topology.h"
#include "turbogr/plan/compute_cost.h"
#include "turbogr/plan/network.h"
#include "turbogr/plan/step_batches.h"
#include "turbogr/plan/step_routes.h"
#include "turbogr/train/stages.h"
#include "turbogr/train/step_options.h"

namespace turbogr::plan {

struct Disturbances {
  int slow_rank = -1;
  double slow_factor = 1;  // its computing takes so many times as long
  SlowLink slow_link;
  double jitter = 0;  // standard deviation of the logarithm of every rank's computing, each step
  std::uint64_t seed = 1;
};

struct SimulationSetup {
  GpuDescription gpu;
  NetworkDescription network;
  StepWork work;
  std::vector<int> nodes;  // [ranks], their machines
  dist::Topology topology;
  // Rows and ids go in two hops, as LayoutOptions has it: to the neighbour that has the owner's
  // place in this machine, merged there, and from there to the owner. 0: in one. Nothing in
  // embedding/ does so; this says what it would gain.
  int machine_ranks = 0;
  train::StepSchedule schedule = train::StepSchedule::kSerial;
  embedding::ReplicaMode replicas = embedding::ReplicaMode::kExact;
  DType row_wire = DType::kF32;
  DType gradient_wire = DType::kF32;
  std::int64_t bucket_bytes = 1 << 20;
  // Tables in host memory: what a row is read as over the device's link to its host, and what its
  // update reads and writes. 0: on the device.
  double host_row_bytes = 0, host_update_bytes = 0;
  bool clips = false;
  bool devices = true;  // GPUs compute, beside their hosts
  bool staged = false;  // their rows and dense sums go from host to host, copied there and back
  int sharing = 1;      // ranks that take turns on a device
  Disturbances disturbances;
  std::vector<int> traced;  // ranks whose stages are kept
};

// A stage of one rank, in seconds.
struct TracedStage {
  int rank;
  int lane;
  const char* name;
  double begin, end;
};

// Seconds of a stage in a step, mean over ranks.
struct StageSeconds {
  std::string name;
  train::StageKind kind = train::StageKind::kCompute;
  double exposed = 0;  // of the lane that computes
  double waiting = 0;  // of it, for ranks that came later
  double hidden = 0;   // of the lane beside it
};

struct Simulation {
  double step_seconds = 0;     // from one step's end to the next one's
  double compute_seconds = 0;  // of the mean rank, with all that one device alone would do
  double busiest_seconds = 0;  // of the busiest rank
  double tokens = 0;           // of a step, all ranks
  double causal_flops = 0;
  std::vector<StageSeconds> stages;
  // Of a step, each link by itself: [ranks], to others of the machine; [machines x NICs].
  std::vector<LinkUse> ports, nics;
  int machines = 1;
  // Of a step, seconds in which each rank's device computes, its host works on ids, and rows of
  // tables in host memory are on their way. On a CPU all of it is the device's.
  std::vector<double> device_seconds, host_seconds, host_link_seconds;  // [ranks]
  std::vector<TracedStage> trace;

  // What a machine sends others in a step, and a rank those of its machine: means.
  double nic_bytes() const;
  double local_bytes() const;

  // Of the devices, in the causal convention (model/flops.h).
  double mfu(const SimulationSetup& setup) const;
  // Against as many devices that do not know of each other.
  double linearity() const { return compute_seconds / step_seconds; }
  double share(train::StageKind kind) const;  // of a step, exposed
  double waiting_share() const { return 1 - compute_seconds / busiest_seconds; }
};

// What is busy longest in a step: a device, a host, the link between them, a port or a NIC.
struct Resource {
  std::string name;  // "NIC 3 of machine 1"
  double share = 0;  // of a step, busy
};
// The busiest of each kind, of those that are busy at all; first the one that binds.
std::vector<Resource> busiest(const Simulation& simulation);
std::string name_of_nic(const Simulation& simulation, std::size_t nic);

// `steps` with one route each; all but the last are simulated, the first (or with late rows the
// first two) to get the pipeline going.
Simulation simulate(const SimulationSetup& setup, std::span<const StepBatch> steps,
                    std::span<const StepRoutes> routes);

// One file for ui.perfetto.dev.
void write_trace(const std::string& path, const Simulation& simulation);

}  // namespace turbogr::plan
